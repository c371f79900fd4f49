"""Says which gradients of a package passing pairs ran: from its text, from a run's records, from its imports.

Every module is imported in a separate process, which records the custom gradients that this makes. That
process may crash, hang, exit or print. The run continues in parallel, and learns which modules can't be
imported. A gradient that is made by a decorator of an unknown name is seen only there. What was covered is
laid out as lines after the table.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from rich.text import Text

from gradcheck_cli import visible
from gradcheck_cli.features.coverage.gradients_in_text import (
    CUSTOM,
    MODULE,
    OVERRIDDEN,
    GradientInText,
    Package,
)
from gradcheck_cli.gate import CoverageStatus, GradientCoverage, GradientRun, WrittenGradient
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import CaseResult, Report, Status
from gradcheck_cli.running.expendable import ExpendableProcess
from gradcheck_cli.visible import clean

_WRAPPER = f"{CUSTOM}.<locals>."  # in names of functions that a wrapper makes, as TensorFlow Probability's
_OF_TESTS = re.compile(r"\.(tests?|conftest|test_\w+|\w+_test)(\.|$)")
_PATIENCE = 600.0  # seconds for all of them: the largest packages take one minute
_UNREACHED = "no case reaches it"
_MADE = "a case makes it, but no pair's gradient runs it"


# Importing.


@dataclass
class Imported:
    """The result of importing modules: why some can't be imported, and what custom gradients were made."""

    failures: dict[str, str] = field(default_factory=dict)
    made: list[GradientRun] = field(default_factory=list)


class Importing:
    """The process that imports modules; it starts at once."""

    def __init__(self, modules: Sequence[str], folders: Sequence[str]) -> None:
        self._modules, self._folders = list(modules), list(folders)
        self._imported = Imported()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> Imported:
        """Wait for it to end, and return what was found."""
        self._thread.join(_PATIENCE)
        for module in self._modules:
            self._imported.failures.setdefault(module, f"wasn't imported within {_PATIENCE:.0f} s")
        return self._imported

    def _run(self) -> None:
        process = ExpendableProcess(f"{__name__}:import_module", subprocess.DEVNULL)
        while self._modules:
            failure, made = "the process ends as it is imported", ()
            with suppress(EOFError):
                ((failure, made),) = process.ask(self._modules[0], self._folders)
            if failure:
                self._imported.failures[self._modules[0]] = clean(failure)
            self._imported.made += made
            del self._modules[0]
        process.close(at_once=True)  # threads that modules have started don't delay it


def import_module(_tell: object, module: str, folders: Sequence[str]) -> tuple[str, tuple[GradientRun, ...]]:
    """Return why a module can't be imported, or nothing, and the custom gradients that this makes."""
    from gradcheck_cli.running.session import start_tensorflow

    start_tensorflow(threads=1)
    from gradcheck_cli.tensorflow_backend import frames, startup, users_code
    from gradcheck_cli.tensorflow_backend.registry import note_gradients

    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    failure = ""
    with note_gradients() as log:
        try:
            with startup.settings():
                users_code.import_module(module)
        except BaseException as error:  # noqa: BLE001 (a script without a guard may exit)
            failure = frames.first_line(error)
    return failure, tuple(site.as_run() for site in log.made)


# Measuring.


@dataclass
class _Evidence:
    """What a run has shown about one gradient."""

    passed: set[str] = field(default_factory=set)  # cases with a passing pair that ran it
    excused: dict[str, str] = field(default_factory=dict)  # cases that ran it and are expected to be wrong
    others: dict[str, str] = field(default_factory=dict)  # other pairs that ran it, and their outcome
    is_made: bool = False


class _Gradients:
    """The gradients of some packages: those in the text, and those that a run made; with their evidence.

    Attributes:
        modules: the packages' modules, by file.
    """

    def __init__(self, packages: Sequence[Package], made: Sequence[GradientRun]) -> None:
        """Note the gradients in the text, and those that an import made."""
        self.modules = {file: name for package in packages for name, file in package.modules.items()}
        self._finds = {find: _Evidence() for package in packages for find in package.finds}
        self._by_place: defaultdict[str, list[GradientInText]] = defaultdict(list)
        for find in self._finds:
            for line in find.lines:
                self._by_place[f"{find.file}:{line}"].append(find)
        # Gradients of one text that close over different functions, such as those of a factory, or that
        # different lines of the modules made.
        self._variants: defaultdict[GradientInText, dict[GradientInText, _Evidence]] = defaultdict(dict)
        self._imported = {run.makers for run in made}
        for run in made:
            self.evidence(run)

    def evidence(self, run: GradientRun) -> list[_Evidence]:
        """Return the evidence of each gradient that a record belongs to."""
        finds = dict.fromkeys(find for place in run.places for find in self._by_place.get(place, ()))
        if not finds:
            # If a helper's call makes the gradients of several functions that it is given, each counts.
            makers = next((self._by_place[place] for place in run.makers if place in self._by_place), [])
            finds = dict.fromkeys([*_find_unlisted(run, self.modules), *makers])
            return [self._finds.setdefault(find, _Evidence()) for find in finds]
        by_makers = (find for place in run.makers for find in self._by_place.get(place, ()))
        overrides = dict.fromkeys(find for find in by_makers if find.kind == OVERRIDDEN)
        evidence = [self._finds[find] for find in finds | overrides]
        if len(finds) == 1:
            (find,) = finds
            variant = self._variant_of(find, run)
            evidence.append(self._variants[find].setdefault(variant, _Evidence()))
        return evidence

    def _variant_of(self, find: GradientInText, run: GradientRun) -> GradientInText:
        """Return a gradient as one of several with the same text."""
        # What a function makes whenever it is called isn't several gradients.
        makers = run.makers if run.makers in self._imported else ()
        elsewhere, made = (
            [
                (file, int(line))
                for file, _, line in (place.rpartition(":") for place in places)
                if file in self.modules and not (file == find.file and int(line) in find.lines)
            ]
            for places in (run.places, makers)
        )
        if elsewhere:
            lines = sorted(line for _, line in elsewhere)
            suffix = f" with {'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines))}"
            return replace(find, name=find.name + suffix, line=lines[0])
        for file, line in made:
            return replace(find, name=f"{find.name} made at line {line}", file=file, line=line)
        return find

    def all(self) -> dict[GradientInText, _Evidence]:
        """Return all gradients; several variants of one text count one by one."""
        several = (variants for variants in self._variants.values() if len(variants) > 1)
        return self._finds | {find: evidence for variants in several for find, evidence in variants.items()}


def measure(
    packages: Sequence[Package], cases: Iterable[CaseResult], imported: Imported, excuses: Mapping[str, str]
) -> GradientCoverage:
    """Return the outcome of each gradient of some packages.

    Args:
        packages: their text, or the part of it that counts.
        excuses: reasons why gradients needn't be covered, by the name as `module:qualname`, by the name that
            it is registered under, or by the module or a package that it is in.
    """
    gradients = _Gradients(packages, imported.made)
    for case in cases:
        for run in case.seen.custom_gradients:
            for evidence in gradients.evidence(run):
                _add_evidence(case, run, evidence)
    unknown = {name: "isn't Python" for package in packages for name in package.unreadable}
    unknown |= imported.failures
    # Tests run where their helpers are installed; whether they hold gradients is the tests' own affair.
    tests = {
        name: f"a module of tests that can't be imported: {unknown[name]}"
        for package in packages
        for name in unknown
        if name.startswith(f"{package.name}.") and _OF_TESTS.search(name.removeprefix(package.name))
    }
    excuses = {**tests, **excuses}
    file_of = {name: file for file, name in gradients.modules.items()}
    outcomes = [
        *(_judge(find, evidence, excuses) for find, evidence in gradients.all().items()),
        *(
            WrittenGradient(
                name,
                MODULE,
                file_of.get(name, ""),
                0,
                CoverageStatus.EXCUSED if excuse else CoverageStatus.MISSING,
                reason=excuse or f"can't be imported: {why}",
            )
            for name, why in unknown.items()
            for excuse in [_excuse(_names_of_packages(name), excuses)]
        ),
    ]
    ordered = sorted(outcomes, key=lambda gradient: (gradient.file, gradient.line, gradient.name))
    return GradientCoverage(tuple(package.name for package in packages), tuple(ordered))


def _find_unlisted(run: GradientRun, modules: Mapping[str, str]) -> Iterator[GradientInText]:
    """Yield a gradient of a package that its text doesn't show; nothing if it isn't the package's."""
    for index, place in enumerate(run.places):
        file, _, line = place.rpartition(":")
        if file not in modules or (index == 0 and _WRAPPER in run.function):
            continue
        name = run.function.rpartition(":")[2] if index == 0 else f"line {line}"
        yield GradientInText(modules[file], name, CUSTOM, file, int(line), frozenset())
        return


def _add_evidence(case: CaseResult, run: GradientRun, evidence: _Evidence) -> None:
    evidence.is_made = True
    label = case.op if case.case == "default" else f"{case.op} · {case.case}"
    for pair in case.pairs:
        if pair.label not in run.pairs or not pair.connected:
            continue
        if pair.status is Status.PASSED:
            evidence.passed.add(label)
        elif pair.status is Status.EXPECTED_MISMATCH:
            evidence.excused[label] = case.how.reason or "expected to be wrong"
        else:
            evidence.others[f"{pair.label} of {label}"] = pair.status.words


def _judge(find: GradientInText, evidence: _Evidence, excuses: Mapping[str, str]) -> WrittenGradient:
    status, reason = CoverageStatus.MISSING, _MADE if evidence.is_made else _UNREACHED
    names = (find.target, find.registered, *_names_of_packages(find.module))
    excuse = _excuse(names, excuses)
    if evidence.passed:
        status, reason = CoverageStatus.COVERED, ""
    elif excuse or evidence.excused:
        status = CoverageStatus.EXCUSED
        reason = excuse or "; ".join(f"{label}: {why}" for label, why in sorted(evidence.excused.items()))
    elif evidence.others:
        label, became = min(evidence.others.items())
        reason = f"{label} ran it, and is {became}"
    return WrittenGradient(
        find.target, find.kind, find.file, find.line, status, tuple(sorted(evidence.passed)), reason
    )


def _names_of_packages(module: str) -> list[str]:
    """Return a module's name, and those of its packages."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _excuse(names: Iterable[str], excuses: Mapping[str, str]) -> str:
    return next((excuses[name] for name in names if name in excuses), "")


# Reporting.


_STYLES = {CoverageStatus.COVERED: "green", CoverageStatus.MISSING: "red", CoverageStatus.EXCUSED: "yellow"}


def headline(coverage: GradientCoverage) -> str:
    """Say in one line how many of the gradients passing pairs ran."""
    covered, missing, excused = map(coverage.count, _STYLES)
    where = ", ".join(coverage.packages) + (f" changed since {coverage.changed}" if coverage.changed else "")
    if not coverage.gradients:
        return f"hand-written gradients of {where}: there are none"
    # Rounded down: 100 % means all of them.
    share = f"{int(coverage.percent * 10) / 10:.1f} %"
    parts = [f"{covered:,} of {covered + missing:,} covered ({share})"]
    parts += [f"{excused:,} excused"] if excused else []
    modules = sum(gradient.line == 0 for gradient in coverage.gradients)
    parts += [f"{visible.count(modules, 'module')} not imported"] if modules else []
    if coverage.falls_short:
        parts.append(f"--cov-fail-under {coverage.fail_under:g} isn't reached")
    return f"hand-written gradients of {where}: {', '.join(parts)}"


def closing_lines(report: Report, width: int) -> list[Text]:
    """Lay out what was covered: sides of branches, and gradients."""
    return branch_lines(report) + (coverage_lines(report.coverage, width) if report.coverage else [])


def coverage_lines(coverage: GradientCoverage, width: int) -> list[Text]:
    """Lay out a line for each gradient that isn't covered, and a line of counts."""
    lines: list[Text] = []
    for gradient in coverage.gradients:
        if gradient.status is not CoverageStatus.COVERED:
            head = Text(f"  {gradient.status}", style=_STYLES[gradient.status])
            place = f"{gradient.file}:{gradient.line}" if gradient.line else gradient.file
            lines.append(head + Text(f"  {layout.clean(f'{gradient.name}  {place}')}", style=""))
            lines += layout.wrap(gradient.reason, width)
    style = "bold red" if coverage.falls_short else "bold"
    return [*lines, *layout.wrap(headline(coverage), width, 0, style=style)]


def branch_lines(report: Report) -> list[Text]:
    """Lay out a line of counts if a share of the sides of branches is required."""
    seen, every = report.sides
    least = report.policy.branch_fail_under
    unknown = sum(bool(case.seen.sides_unknown) for case in report.cases)
    if least is None or not (every or unknown):
        return []
    message = f"sides of branches: {seen:,} of {every:,} seen"
    message += f" ({int(1000 * seen / every) / 10:.1f} %)" if every else ""
    message += f", not all looked at in {visible.count(unknown, 'case')}" if unknown else ""
    if not report.branches_fall_short:
        return [Text(message, style="bold")]
    return [Text(f"{message}, --branch-fail-under {least:g} isn't reached", style="bold red")]
