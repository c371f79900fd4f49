"""The places at which the core calls features, each named here once, in the order of a run.

A feature is a folder of `gradcheck_cli.features`. Its `__init__` is all that the core sees of it: tables of
what it has, each entry with the module of its folder that is imported when it is used. `COMMANDS` and
`FORMATS` are by name; `HOOKS` has `module:name` of what is called at a hook.
Without its folder a feature is missing from every list, and nothing else changes. Checks, reports and
generators of other packages are found by their entry points, when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gradcheck_cli import clock
from gradcheck_cli.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from gradcheck_cli.checking.verdicts.summary import Findings
    from gradcheck_cli.results import CaseResult, Report


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


def _tables(name: str) -> Iterator[tuple[str, Any]]:
    """Yield the table of each feature that has one, and the package in which its modules are."""
    return ((feature.__name__, getattr(feature, name)) for feature in features() if hasattr(feature, name))


# What features are asked, by name, with the arguments; several may answer only where that is said. In a run:
OF_A_RUN = (
    "run_options",  # the `FeatureOptions` of `run`, of each feature that has some
    # (context, paths, read, workers, mark) runs again and again as files change, and returns the exit code
    "watch_cases",
    # (address of a scheduler, limits, settings, folder for output) starts workers elsewhere
    "start_in_cluster",
    "closing_lines",  # (report, width) lays out lines at the end of a run, above the summary; several
    # (kind, context, incomplete) offers words to the shell: "ops", "op_types", "names" (of cases), "tags" or
    # "pairs" of the specs; several
    "completing",
    # (package, folders) returns the hand-written gradients in a package's text: with their `target`,
    # `module:function`, and the op type for which one is `registered`
    "find_gradients",
    "run_corrupted",  # (case, opener, points, corruptions) checks a case's gradient with each of them
)
# While a case is checked:
AT_A_CASE = (
    "behaviour",  # how TensorFlow behaves while the user's code runs, a `Behaviour`
    "fingerprints",  # (case, formula, pairs) by which a baseline recognises each pair at a sample point
    # (samples, output, input, other pairs, points) which mistake a pair's error looks like, as lines
    "diagnose",
    # (case, operations, pairs, checks) a wrong case's pairs with the cause of their mismatch, and its checks
    "find_common_cause",
)


def _hooked(hook: str) -> Iterator[Any]:
    """Import what features have at a hook, and yield it."""
    for package, table in _tables("HOOKS"):
        if hook in table:
            module, _, name = table[hook].partition(":")
            yield getattr(import_module(f"{package}.{module}".rstrip(".")), name)


def ask_each(hook: str, *arguments: Any) -> Iterator[Any]:  # noqa: ANN401 (as each hook has it)
    """Yield what each feature answers at a hook; what it calls is imported now."""
    return (value(*arguments) if callable(value) else value for value in _hooked(hook))


def ask(hook: str, *arguments: Any, default: Any = None) -> Any:  # noqa: ANN401 (as each hook has it)
    """Return what the first feature answers at a hook; without one, the default."""
    return next(ask_each(hook, *arguments), default)


def load() -> None:
    """Import what features need at a case: a process that forks others does that once for all of them."""
    for hook in (*AFTER_VERDICT, *AT_A_CASE):
        list(_hooked(hook))


def commands() -> dict[str, Command]:
    """Return the commands of all features by name."""
    tables = _tables("COMMANDS")
    return {
        name: Command(f"{package}.{module}", *words)
        for package, table in tables
        for name, (module, *words) in table.items()
    }


def formats() -> dict[str, Format]:
    """Return the report formats of all features by name."""
    return {
        name: form._replace(module=f"{package}.{form.module}")
        for package, table in _tables("FORMATS")
        for name, form in table.items()
    }


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

    def write(self, report: Report) -> int:  # noqa: ARG002 (as above)
        """Write the feature's files, and return the exit code for that."""
        return 0


@dataclass(frozen=True)
class FeatureOptions:
    """A feature's options of `run`."""

    heading: str  # the heading in `--help`
    kind: type  # the class of its options, in the order of `--help`
    # takes the command's context, the specs' paths and the object; returns its part of this run; called only
    # where some option says so
    begin: Callable[[click.Context, Sequence[str], Any], RunPart]

    def is_asked(self, values: object) -> bool:
        """Whether any of its options was given, by their values as one object."""
        return any(not (value is None or value is False or value == ()) for value in vars(values).values())


def run_options() -> tuple[FeatureOptions, ...]:
    """Return the features' options of `run`."""
    return tuple(ask_each("run_options"))


# Other commands.


def completing(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return what offers words to the shell after a Tab; it offers none if no feature does.

    Args:
        kind: "ops", "op_types", "names" (of cases), "tags" or "pairs" of the specs.
    """

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [item for items in ask_each("completing", kind, ctx, incomplete) for item in items]

    return complete


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
    own: Behaviour = ask("behaviour") or Behaviour()
    return own


@dataclass
class OpenCase:
    """A case that was checked and is still open."""

    opener: Any  # an `Opener`; in a mode with graphs a `CaseOpener`
    points: Sequence[int]  # indices of the sample points
    findings: Findings  # what is known so far; a hook adds to it
    spent: float  # seconds of processor time since the case was begun, when it was judged
    evaluated: int  # how many points that took
    explains: bool = True  # whether causes and other inputs are looked for

    def has(self, status: str) -> bool:
        """Whether a pair has this status."""
        return any(pair.status == status for pair in self.findings.pairs)


# The hooks that look at a judged case, in acting order, each with when it is called. A chosen point adds a
# mismatch of its own; pictures show the end result.
AFTER_VERDICT: Mapping[str, Callable[[OpenCase], bool]] = {
    "explain_mismatches": lambda case: case.explains and case.has("mismatched"),
    "run_own_checks": lambda _: True,
    "choose_points": lambda case: case.explains and bool(case.findings.pairs),
    "draw_figures": lambda case: bool(case.opener.case.wanted.figures_of),
    "keep_jacobians": lambda case: case.opener.case.wanted.keeps_jacobians,
}


def after_verdict(case: OpenCase, stages: Mapping[str, Callable[[OpenCase], None]]) -> Findings:
    """Let features look at a judged case.

    Args:
        stages: what the core itself does at a stage.
    """
    for stage, is_needed in AFTER_VERDICT.items():
        if is_needed(case):
            with clock.spend(clock.CHOSEN if stage == "choose_points" else "diagnosis"):
                if stage in stages:
                    stages[stage](case)
                for _ in ask_each(stage, case):
                    pass
    return case.findings


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
