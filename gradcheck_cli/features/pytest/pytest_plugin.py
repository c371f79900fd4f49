"""The pytest plugin: `pytest --gradcheck` makes a test for each pair that specs describe.

A case's pairs are known only after it is traced. So cases are opened at collection, and checked when the
first of their tests runs, both in separate processes as in `gradcheck run`. Without the option, no other part
of the package is loaded, and TensorFlow isn't either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gradcheck_cli.cli.options.gate_options import GateOptions
    from gradcheck_cli.reporting.exchange.findings import Finding
    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.running.local_workers import LocalWorkers
    from gradcheck_cli.spec.case import Case

OPTION = "--gradcheck"
SUFFIX = re.compile(r".*\.gradcheck\.ya?ml")
ANY_SPEC = re.compile(r".*\.ya?ml")
# The test of a case itself: that it runs at all, and its structural checks.
WHOLE = "case"
_BRACKETS = str.maketrans("[]", "()")  # pytest reads a bracket as the beginning of parameters


class GradcheckFailure(Exception):  # noqa: N818 (pytest shows the name)
    """A pair, or a case, that isn't right; the text is that of `gradcheck run`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--gradcheck`."""
    group = parser.getgroup("gradcheck", "gradients checked by specs")
    group.addoption(
        OPTION,
        action="store_true",
        help="collect *.gradcheck.yaml and the specs that [tool.gradcheck] names: a test for each pair",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the configured specs too, unless the command line says what to collect."""
    if not config.getoption(OPTION):
        return
    specs = _configured_specs(config)
    config.stash[_SPECS] = specs
    config.stash[_RUNS] = Runs()
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        folder = config.invocation_params.dir
        requested = {str(folder.joinpath(argument).resolve()) for argument in config.args}
        config.args += [str(path) for path in specs if path.exists() and str(path) not in requested]


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the processes."""
    runs = config.stash.get(_RUNS, None)
    if runs is not None:
        runs.close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a file of specs."""
    if not parent.config.getoption(OPTION):
        return None
    is_configured = any(
        folder == file_path or folder in file_path.parents for folder in parent.config.stash[_SPECS]
    )
    if SUFFIX.fullmatch(file_path.name) or (is_configured and ANY_SPEC.fullmatch(file_path.name)):
        return SpecFile.from_parent(parent, path=file_path)
    return None


def _configured_specs(config: pytest.Config) -> tuple[Path, ...]:
    from gradcheck_cli.cli.options.configured import default_paths, read_settings
    from gradcheck_cli.errors import UsageError

    folder = config.invocation_params.dir
    # A repository may hold several libraries, each with settings of its own. A test's name begins with its
    # file.
    requested = [folder / argument.partition("::")[0] for argument in config.args]
    try:
        own = [settings for settings in map(read_settings, requested) if settings.file is not None]
        paths = [
            *default_paths(folder),
            *(path for settings in own for path in default_paths(folder, settings)),
        ]
        return tuple(dict.fromkeys(folder.joinpath(path).resolve() for path in paths))
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


class Runs:
    """The processes in which cases are opened and checked, and the results so far."""

    def __init__(self) -> None:
        self._workers: LocalWorkers | None = None
        self._results: dict[tuple[str, ...], CaseResult] = {}

    def open(self, cases: Sequence[Case]) -> list[CaseResult]:
        """Return each case with its pairs, none of which has been checked."""
        return self._run(cases, listing=True)

    def check(self, case: Case) -> CaseResult:
        """Return a case's result; it is checked once."""
        key = (case.spec, *case.mode_key)
        if key not in self._results:
            (self._results[key],) = self._run([case])
        return self._results[key]

    def _run(self, cases: Sequence[Case], *, listing: bool = False) -> list[CaseResult]:
        from gradcheck_cli.running.limits import Limits, default_jobs, default_memory
        from gradcheck_cli.running.local_workers import LocalWorkers
        from gradcheck_cli.running.run_loop import Ended

        if self._workers is None:
            self._workers = LocalWorkers(default_jobs(), Limits(memory=default_memory()))
        events = self._workers.run(cases, listing=listing)
        results = {event.index: event.result for event in events if isinstance(event, Ended)}
        return [results[index] for index in range(len(cases))]

    def close(self) -> None:
        """End the processes."""
        if self._workers is not None:
            self._workers.close()


_SPECS = pytest.StashKey[tuple["Path", ...]]()
_RUNS = pytest.StashKey[Runs]()


class SpecFile(pytest.File):
    """A file of specs; below it are ops, cases and pairs."""

    def collect(self) -> Iterable[pytest.Collector]:
        """Read the file, and open its cases."""
        from gradcheck_cli.cli.options.gate_options import configured_gate
        from gradcheck_cli.errors import GradcheckError
        from gradcheck_cli.spec.case import in_each_mode
        from gradcheck_cli.spec.load import load

        try:
            gate = configured_gate([self.path])
            _ = gate.ignored  # so that a bad code is a fault now
            loaded = load([self.path])
            if loaded.exceptions and not loaded.cases:  # they say what has no spec: nothing to test
                return
            cases = in_each_mode(loaded.cases)
            opened = self.config.stash[_RUNS].open(cases)
        except GradcheckError as error:
            raise self.CollectError(str(error)) from None
        ops: dict[str, list[tuple[Case, CaseResult]]] = {}
        for case, result in zip(cases, opened, strict=True):
            ops.setdefault(case.op, []).append((case, result))
        for name, members in ops.items():
            op = SpecOp.from_parent(self, name=name.translate(_BRACKETS))
            op.members, op.gate = members, gate
            yield op


class SpecOp(pytest.Collector):
    """One op of a file."""

    members: Sequence[tuple[Case, CaseResult]]  # its cases, each opened
    gate: GateOptions

    def collect(self) -> Iterator[pytest.Collector]:
        """Name the cases, with mode and dtype where several have the same name."""
        for case, opened in self.members:
            parts = [case.name]
            parts += [case.origin.variant] if case.origin.variant else []
            parts += [case.mode] if len(case.running.modes) > 1 else []
            node = SpecCase.from_parent(self, name="-".join(parts).translate(_BRACKETS))
            node.case, node.opened, node.gate = case, opened, self.gate
            node.extra_keyword_matches.update(case.origin.tags)
            yield node


class SpecCase(pytest.Collector):
    """One case; it has a test for each pair, and one for itself."""

    case: Case
    opened: CaseResult
    gate: GateOptions

    @property
    def labels(self) -> list[str]:
        """The labels of the pairs that opening the case has shown."""
        return [pair.label for pair in self.opened.pairs]

    def collect(self) -> Iterator[pytest.Item]:
        """Make a test for each pair, and for the case itself."""
        has_groups = self.config.pluginmanager.hasplugin("xdist")
        for label in [WHOLE, *self.labels]:
            item = SpecItem.from_parent(self, name=label)
            if has_groups:  # with --dist loadgroup a case is checked in one process, and so only once
                item.add_marker(pytest.mark.xdist_group(" ".join((self.case.spec, *self.case.key))))
            yield item

    def check(self) -> CaseResult:
        """Return the case's result; it is checked once."""
        return self._check(self.case)

    def check_in_all_modes(self) -> list[CaseResult]:
        """Return the case's results in all of its modes."""
        from gradcheck_cli.spec.case import in_each_mode

        return list(map(self._check, in_each_mode([self.case])))

    def _check(self, case: Case) -> CaseResult:
        return self.gate.ignored.mark(self.config.stash[_RUNS].check(case))


class SpecItem(pytest.Item):
    """One pair, or the case itself."""

    parent: SpecCase

    def runtest(self) -> None:
        """Pass, skip or fail according to the finding."""
        from gradcheck_cli.reporting.exchange.findings import BAD, Outcome, findings_of_case
        from gradcheck_cli.results import Status, find_unchecked, judge_empty_pairs

        # Whether another case's pair has elements, opening it has shown.
        selected = [item.parent.opened for item in self.session.items if isinstance(item.parent, SpecCase)]
        result = judge_empty_pairs(self.parent.check(), selected)
        self.user_properties += [("spec", result.spec), ("mode", result.mode), ("dtype", result.dtype)]
        policy, is_whole = self.parent.gate.policy, self.name == WHOLE
        # Of the case: what no other test judges, such as pairs that opening it hadn't shown.
        findings = [
            finding
            for finding in findings_of_case(result, policy, strict=policy.strict)
            if (finding.name not in self.parent.labels if is_whole else finding.name == self.name)
        ]
        bad = [finding for finding in findings if finding.outcome in BAD]
        if bad or not (findings or is_whole):
            raise GradcheckFailure(_failure_text(result, bad))
        if not is_whole and findings[0].outcome is Outcome.SKIPPED:
            pytest.skip(findings[0].title)
        if is_whole and result.status is Status.SKIPPED:
            said = (*(check.message for check in result.checks), *(pair.note for pair in result.pairs))
            reason = next(filter(None, said), "its spec says so")
            # In a run, too, what is for another version fails only where nothing else ran.
            is_part, in_all_modes = any(opened.pairs for opened in selected), self.parent.check_in_all_modes
            if policy.strict or find_unchecked(in_all_modes(), is_part=is_part):
                raise GradcheckFailure(f"nothing of this case was checked: {reason}")
            pytest.skip(reason)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:  # noqa: ANN401 (pytest's own)
        """Return the text of `gradcheck run` instead of a traceback."""
        if isinstance(excinfo.value, GradcheckFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the spec's place, and the heading of a failure."""
        case = self.parent.case
        line = int(case.spec.rpartition(":")[2])
        return self.path, line - 1, f"{case.op} · {self.parent.name} · {self.name}"


def _failure_text(result: CaseResult, bad: Sequence[Finding]) -> str:
    """Return one line for pytest's summary, then the table of these pairs; checks go with the case itself."""
    from dataclasses import replace

    from gradcheck_cli.reporting.report_text import case_lines
    from gradcheck_cli.reporting.terminal.layout import plain

    pairs = tuple(finding.pair for finding in bad if finding.pair is not None)
    shown = replace(result, pairs=pairs, checks=() if pairs else result.checks)
    first = bad[0].headline if bad else str(result.status)
    return f"{first}\n{plain(case_lines(shown, width=100))}"
