"""The places at which the core calls features, each named here once, in the order of a run.

A feature is a folder of `gradcheck_cli.features`. Its `__init__` is all that the core sees of it: tables of
what it has, each entry with the module that is imported when it is used. `COMMANDS` and `FORMATS` are by
name; `HOOKS` has `module:name` of what is called at a hook.
Without its folder a feature is missing from every list, and nothing else changes. Checks, reports and
generators of other packages are found by their entry points, when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from gradcheck_cli.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem
    from rich.text import Text

    from gradcheck_cli.checking.checks.check import ModesView
    from gradcheck_cli.checking.ops.jacobian import PairKey
    from gradcheck_cli.checking.ops.operation import Opener, Opening, Operation, Operations, TensorInfo
    from gradcheck_cli.checking.pairs.pair import PairSample, PointData
    from gradcheck_cli.checking.verdicts.summary import Findings
    from gradcheck_cli.gate import BaselineFinding, Fingerprint
    from gradcheck_cli.results import CaseResult, CheckResult, PairResult, PathOp, Report
    from gradcheck_cli.running.run_loop import Workers
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
    from gradcheck_cli.tensorflow_backend.graph.traced_case import CaseState
    from gradcheck_cli.tensorflow_backend.openers import GraphMode


# In the order of `--help`, and in which they act at a hook.
DEFAULT_FEATURES = (
    "init",
    "exchange",
    "page",
    "blame",
    "search",
    "mutation",
    "coverage",
    "baseline",
    "watch",
    "cluster",
    "diagnosis",
    "schema",
    "library",
    "pytest",
    "modes",
    "tensorflow1",
    "explain",
    "completion",
)


class Command(NamedTuple):
    """A command, which is imported when it runs."""

    module: str  # its module
    summary: str  # its line in `--help`
    attribute: str = "command"  # its name there


class Format(NamedTuple):
    """A format of reports."""

    module: str  # the module that renders it; imported when a report is rendered
    function: str  # its function, which takes a report and returns text
    is_rooted: bool = False  # whether the function also takes the folder from which files are named
    to_file: bool = True  # whether `--report KIND=FILE` offers it
    is_json: bool = False  # whether it is JSON, where any character may be written as an escape
    of_faults: str = ""  # the function that writes a spec's faults in it, which takes them and the folder


@lru_cache(maxsize=1)
def features() -> tuple[ModuleType, ...]:
    """Import what the core sees of each feature that is there."""
    modules = []
    for name in DEFAULT_FEATURES:
        module = f"gradcheck_cli.features.{name}"
        try:
            modules.append(import_module(module))
        except ModuleNotFoundError as error:
            if error.name not in {module, "gradcheck_cli.features"}:
                raise
    return tuple(modules)


def _tables(name: str) -> Iterator[Any]:
    return (getattr(feature, name) for feature in features() if hasattr(feature, name))


def _implementations(hook: str) -> Iterator[Any]:
    """Import what the features call at a hook."""
    for table in _tables("HOOKS"):
        if hook in table:
            module, _, name = table[hook].partition(":")
            yield getattr(import_module(module), name)


def load() -> None:
    """Import what features need at a case: a process that forks others does that once for all of them."""
    for hook in (*AFTER_VERDICT, *_AT_A_CASE):
        tuple(_implementations(hook))


def commands() -> dict[str, Command]:
    """Return the commands of all features by name."""
    return {name: command for table in _tables("COMMANDS") for name, command in table.items()}


def formats() -> dict[str, Format]:
    """Return the report formats of all features by name."""
    return {name: form for table in _tables("FORMATS") for name, form in table.items()}


# A run.


class RunPart:
    """What a feature does in one run, beside checking: by default nothing."""

    needs_fingerprints = False  # whether each pair's fingerprint is to be recorded
    writes = False  # whether a file is written at the end, so that the run goes on if standard output is lost

    def mark(self, case: CaseResult) -> CaseResult:
        """Return a case whose result the feature may excuse."""
        return case

    def add_to(self, report: Report) -> Report:
        """Return the report with the feature's part of it."""
        return report

    def lines(self, report: Report, width: int) -> Sequence[Text]:  # noqa: ARG002 (those who have lines need them)
        """Lay out what the command line asked for, to be printed after the tables."""
        return ()

    def write(self, report: Report) -> int:  # noqa: ARG002 (as above)
        """Write the feature's files, and return the exit code for that."""
        return 0


@dataclass(frozen=True)
class FeatureOptions:
    """A feature's options of `run`."""

    name: str  # the parameter that takes their values as one object
    heading: str  # the heading in `--help`
    kind: type  # the class of that object; its fields are the options' parameters, in the order of `--help`
    options: tuple[Callable[..., Any], ...]  # each adds an option to a command
    # takes the command's context, the specs' paths and the object; returns its part of this run; called only
    # where some option says so
    begin: Callable[[click.Context, Sequence[str], Any], RunPart]

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the options' parameters."""
        return tuple(field.name for field in fields(self.kind))

    def is_asked(self, values: object) -> bool:
        """Whether any of its options was given, by their values as one object."""
        return any(not (value is None or value is False or value == ()) for value in vars(values).values())


def run_options() -> tuple[FeatureOptions, ...]:
    """Return the features' options of `run`."""
    return tuple(_implementations("run_options"))


def watch_cases(
    ctx: click.Context,
    paths: Sequence[str],
    read: Callable[[], Sequence[Case]],
    workers: object,
    mark: Callable[[CaseResult], CaseResult],
) -> int | None:
    """Run again and again, as files change; return the exit code, or `None` if no feature can."""
    return next((watch(ctx, paths, read, workers, mark) for watch in _implementations("watch_cases")), None)


def start_in_cluster(
    address: str, jobs: int, limits: object, settings: Mapping[str, Any], output: Path | None
) -> Workers | None:
    """Start workers elsewhere; `None` if no feature can.

    Args:
        address: the scheduler's, HOST:PORT; empty for a cluster made on this machine.
        jobs: how many processes a cluster on this machine has.
    """
    starts = _implementations("start_in_cluster")
    return next((start(address, jobs, limits, settings, output) for start in starts), None)


def closing_lines(report: Report, width: int) -> list[Text]:
    """Lay out the features' lines at the end of a run, above the summary."""
    lines = (lay_out(report, width) for lay_out in _implementations("closing_lines"))
    return [line for part in lines for line in part]


# Other commands.


def completing(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return what offers words to the shell after a Tab; it offers none if no feature does.

    Args:
        kind: "spec_files", "op_types"; or "ops", "names" (of cases), "tags" or "pairs" of the specs.
    """

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [item for offer in _implementations("completing") for item in offer(kind, ctx, incomplete)]

    return complete


class FoundGradient(Protocol):
    """A hand-written gradient in a module's text."""

    @property
    def target(self) -> str:
        """`module:function`."""

    @property
    def registered(self) -> str:
        """The op type that it is registered for; empty for none."""


def find_gradients(package: str, places: Sequence[str]) -> Sequence[FoundGradient]:
    """Return the hand-written gradients in a package's text, looked for in some folders."""
    found_by = _implementations("find_gradients")
    return [gradient for find in found_by for gradient in find(package, places)]


def compare_on_page(
    old: tuple[str, Report], new: tuple[str, Report], findings: Sequence[BaselineFinding]
) -> str:
    """Render two reports side by side, each with its file's name, as one page; empty if no feature can."""
    return next((str(render(old, new, findings)) for render in _implementations("compare_on_page")), "")


# A case.


class Behaviour:
    """How TensorFlow behaves while the user's code runs: as TensorFlow 2 does, which is the process's own.

    A feature may let it behave as modules ask that switch some of that off.
    """

    @property
    def turns_eager_off(self) -> bool:
        """Whether the code of the case, as far as it is loaded, turns eager execution off."""
        return False

    def own(self) -> AbstractContextManager[None]:
        """Run gradcheck's own code, whatever the program that calls it has switched."""
        return nullcontext()

    def case(self) -> AbstractContextManager[None]:
        """Run one case; modules that are loaded within say how their functions are to be run."""
        return nullcontext()

    def import_module(self, name: str) -> None:
        """Import a module of the user's."""
        __import__(name)

    def calling(self) -> AbstractContextManager[None]:
        """Call functions of the case, in eager mode or for a function that is traced."""
        return nullcontext()

    def tracing(self) -> AbstractContextManager[None]:
        """Trace functions of the case."""
        return nullcontext()

    def wrap_numpy(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a NumPy function of the case, to be called while a graph runs."""
        return function


def behaviour() -> Behaviour:
    """Return how TensorFlow behaves while the user's code runs."""
    return next(_implementations("behaviour"), Behaviour())


def find_mode(name: str) -> GraphMode | None:
    """Return how a case is opened in another mode than graph; `None` if no feature has it."""
    return next((mode for find in _implementations("find_mode") if (mode := find(name)) is not None), None)


def works_eagerly(case: Case, opening: Opening, state: CaseState) -> bool:
    """Whether a forward that can't be traced has gradients where it is called eagerly."""
    return any(works(case, opening, state) for works in _implementations("works_eagerly"))


def compare_modes(view: ModesView) -> list[CheckResult]:
    """Compare a case's gradients with those of another mode; the check `modes`."""
    return [result for compare in _implementations("compare_modes") for result in compare(view)]


def run_corrupted(case: Case, opener: Opener[Any], points: Sequence[int]) -> Findings:
    """Check a case's gradient with each of `Wanted.corruptions` in turn."""
    findings: Findings = next(_implementations("run_corrupted"))(
        case, opener, points, case.wanted.corruptions
    )
    return findings


@dataclass
class OpenCase:
    """A case that was checked and is still open."""

    opener: Any  # an `Opener`; in a mode with graphs a `CaseOpener`
    points: Sequence[int]  # indices of the sample points
    findings: Findings  # what is known so far; a hook adds to it
    spent: float  # seconds of processor time since the case was begun, when it was judged
    explains: bool = True  # whether causes and other inputs are looked for

    def has(self, status: str) -> bool:
        """Whether a pair has this status."""
        return any(pair.status == status for pair in self.findings.pairs)


# The hooks that look at a judged case, in acting order, each with when it is called. More draws may change a
# verdict, which is then explained; a chosen point adds a mismatch of its own; pictures show the end result.
AFTER_VERDICT: Mapping[str, Callable[[OpenCase], bool]] = {
    "draw_more_points": lambda case: case.has("inconclusive"),
    "explain_mismatches": lambda case: case.explains and case.has("mismatched"),
    "run_own_checks": lambda _: True,
    "choose_points": lambda case: case.explains and bool(case.findings.pairs),
    "draw_figures": lambda case: bool(case.opener.case.wanted.figures_of),
    "keep_jacobians": lambda case: case.opener.case.wanted.keeps_jacobians,
}


# The others that are called while a case is checked.
_AT_A_CASE = (
    "behaviour",
    "find_mode",
    "compare_modes",
    "draw_path",
    "fingerprints",
    "find_written_ops",
    "are_right_alone",
    "diagnose",
    "find_common_cause",
)


def after_verdict(case: OpenCase, stages: Mapping[str, Callable[[OpenCase], None]]) -> Findings:
    """Let features look at a judged case.

    Args:
        stages: what the core itself does at a stage.
    """
    for stage, is_needed in AFTER_VERDICT.items():
        if is_needed(case):
            own = [stages[stage]] if stage in stages else []
            for look in (*own, *_implementations(stage)):
                look(case)
    return case.findings


def draw_path(opener: Opener[Any], pair: PairKey, sample: int) -> tuple[PathOp, ...]:
    """Return the ops between an output and an input with their verdicts, in the order of the forward."""
    return tuple(op for draw in _implementations("draw_path") for op in draw(opener, pair, sample))


# A sample point and its pairs.


def fingerprints(case: Case, formula: Operation, pairs: Sequence[PairKey]) -> Mapping[PairKey, Fingerprint]:
    """Return numbers by which a baseline recognises each pair's gradient and forward at a sample point."""
    return next((take(case, formula, pairs) for take in _implementations("fingerprints")), {})


def find_written_ops(op: GraphOperation, output: int, inputs: Sequence[int]) -> Sequence[Operation] | None:
    """Return the ops between an output and inputs whose gradients the user wrote; `None` if unknown."""
    return next((find(op, output, inputs) for find in _implementations("find_written_ops")), [])


def are_right_alone(ops: Sequence[Operation] | None) -> bool:
    """Whether each op's gradient is right by itself; `None` stands for ops that aren't known."""
    return ops is not None and all(are_right(ops) for are_right in _implementations("are_right_alone"))


def diagnose(
    samples: Sequence[PairSample],
    output: TensorInfo,
    input_info: TensorInfo,
    other_pairs: Sequence[Mapping[str, PairSample]],
    points: Sequence[PointData],
) -> tuple[str, ...]:
    """Say which mistake a pair's error looks like; nothing where no known one does."""
    guesses = _implementations("diagnose")
    return tuple(
        line for guess in guesses for line in guess(samples, output, input_info, other_pairs, points)
    )


def find_common_cause(
    case: Case, operations: Operations | None, pairs: tuple[PairResult, ...], checks: list[CheckResult]
) -> tuple[tuple[PairResult, ...], list[CheckResult]]:
    """Return a wrong case's pairs with the cause of their mismatch, where the rest of the case shows it.

    Returns:
        The pairs; and the checks, the likely cause of the others first.
    """
    for find in _implementations("find_common_cause"):
        pairs, checks = find(case, operations, pairs, checks)
    return pairs, checks


# Parts of other packages, by the groups of their entry points.

CHECKS = "gradcheck.checks"
REPORTS = "gradcheck.reports"
GENERATORS = "gradcheck.generators"


@lru_cache(maxsize=3)
def extensions(group: str) -> Mapping[str, Callable[..., Any]]:
    """Return the functions that installed packages register under a group, by name.

    Raises:
        UsageError: two packages register the same name, or a function can't be imported.
    """
    from importlib.metadata import entry_points

    functions: dict[str, Callable[..., Any]] = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        if point.name in functions:
            raise UsageError(f"entry point '{point.name}' of {group} is there twice; uninstall one package.")
        try:
            functions[point.name] = point.load()
        except Exception as error:  # another package's module may raise anything
            raise UsageError(
                f"entry point '{point.name}' of {group}, {point.value}, can't be imported: {error}; fix or "
                "uninstall the package."
            ) from error
    return functions
