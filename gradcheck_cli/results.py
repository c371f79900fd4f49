"""What a run found, as frozen values: pairs, checks, cases, reports; and the resulting exit code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from gradcheck_cli.clock import Work
from gradcheck_cli.gate import (
    BaselineFinding,
    Branch,
    Fingerprint,
    GradientCoverage,
    GradientRun,
    Selection,
    Shard,
    Tolerance,
    side_counts,
)


class Status(str, Enum):
    """Outcome of a pair, a check or a case; the words are a contract."""

    PASSED = "passed"
    MISMATCHED = "mismatched"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    SKIPPED = "skipped"
    EXPECTED_MISMATCH = "expected_mismatch"
    IGNORED = "ignored"  # inconclusive, but `--ignore` leaves it out
    KNOWN = "known"  # wrong, undecided or failed, as the baseline records it
    UNEXPECTED_PASS = "unexpected_pass"  # noqa: S105 (a status, not a password)

    def __str__(self) -> str:
        return self.value

    @property
    def words(self) -> str:
        """Its words in a sentence."""
        return self.value.replace("_", " ")


# A case has the first of these statuses that occurs among its pairs and checks.
SEVERITY = (
    Status.MISMATCHED,
    Status.UNEXPECTED_PASS,
    Status.ERROR,
    Status.INCONCLUSIVE,
    Status.KNOWN,
    Status.IGNORED,
    Status.EXPECTED_MISMATCH,
    Status.PASSED,
    Status.SKIPPED,
)

# The check that skips a case whose spec is for other versions of TensorFlow.
VERSION_CHECK = "tensorflow"

FAILING = frozenset({Status.MISMATCHED, Status.UNEXPECTED_PASS})  # exit 1
UNDECIDED = frozenset({Status.ERROR, Status.INCONCLUSIVE})  # exit 3
GREEN = frozenset({Status.PASSED, Status.EXPECTED_MISMATCH})
OPEN = frozenset({Status.INCONCLUSIVE, Status.IGNORED})  # the numbers can't tell
EXCUSED = frozenset({Status.IGNORED, Status.KNOWN})  # not right, and no failure


@dataclass(frozen=True)
class WorstElement:
    """The element with the largest ratio of error to bound.

    Indices follow the output's and the input's own shape. The real and the imaginary part of a complex tensor
    are elements of their own: `output_part` and `input_part` say which part ("re", "im", or "" for a real
    tensor). `uncertainty` bounds the numeric value's own error.
    """

    output_index: tuple[int, ...]
    input_index: tuple[int, ...]
    analytic: float | complex
    numeric: float | complex
    uncertainty: float
    output_part: str = ""
    input_part: str = ""


@dataclass(frozen=True)
class PairNumbers:
    """How far a gradient is off, over all elements and all sample points."""

    max_abs_error: float = 0.0  # the largest absolute error of all elements
    max_rel_error: float = 0.0  # the largest relative error of all elements
    allowed: float = 0.0  # the tolerance of the worst element
    uncertainty: float = 0.0  # the bound on the numeric value's own error there
    tolerance: Tolerance | None = None  # the rule behind `allowed`
    elements: int = 0  # how many elements the Jacobian has
    kinks: int = 0  # how many elements passed for lying between one-sided slopes
    wrong_elements: int = 0  # how many of the elements are wrong
    # how many of the elements that were judged one by one, at all sample points, each rule decided:
    # "plainly", "at a kink", "tuned to its dtype"
    decided_by: dict[str, int] = field(default_factory=dict)
    worst: WorstElement | None = None  # the element with the largest ratio of error to bound
    # the worst element's error; elements at kinks don't count if all are right. `None` where it is
    # `max_abs_error`.
    worst_error: float | None = None
    # what was allowed there, with the numeric value's own error added. `None` where it is `allowed` plus
    # `uncertainty`.
    worst_bound: float | None = None


@dataclass(frozen=True)
class NumericSide:
    """How a pair was judged: the numeric derivative, or the random probes."""

    method: str = "central"  # how it was judged
    # the dtype of the numeric derivative, or the one that it is as accurate as
    reference_dtype: str = "float64"
    not_float64: str = ""  # why `reference_dtype` isn't float64
    # how often the forward was evaluated, over all samples; pairs of one input share this
    evaluations: int = 0
    columns: int = 0  # the input's real elements that these evaluations were for, over all samples
    # where random probes judged, the chance that they missed an error of `miss_size` in one element. Errors
    # and `allowed` are then relative to the probes' own size.
    miss_probability: float | None = None
    miss_size: float | None = None  # the relative size of that error


NOT_JUDGED = NumericSide("none")


# A pair's pictures: plain numbers, so that a worker can send them as JSON to the process that writes them.

# Cells of a heat map along an edge: more can't be distinguished on a phone.
MOST_CELLS = 32


@dataclass(frozen=True)
class HeatMap:
    """A Jacobian, in as many cells as can be distinguished.

    A cell represents `row_step` x `column_step` elements; the one with the largest share is shown.
    """

    rows: tuple[str, ...]  # each cell's element of the output, such as `y[0,2]`; the first of several
    columns: tuple[str, ...]  # each cell's element of the input
    row_step: int  # elements of the output in a cell
    column_step: int  # elements of the input in a cell
    analytic: tuple[tuple[float, ...], ...]  # (rows, columns) from the gradient under test
    numeric: tuple[tuple[float, ...], ...]  # from differences
    share: tuple[tuple[float, ...], ...]  # the error as a share of what is allowed; above 1 is wrong
    # a word per row with a letter per element: `.` passed, `k` at a kink, `x` wrong, `?` undecided
    verdicts: tuple[str, ...]


@dataclass(frozen=True)
class Ladder:
    """Differences of one element at shrinking steps, from which the numeric derivative is chosen."""

    element: str  # `y[1,2] / x[1,2]`
    steps: tuple[float, ...]  # the steps, the largest first
    central: tuple[float, ...]  # the slope from both sides, at each
    above: tuple[float, ...]  # from above alone
    below: tuple[float, ...]  # from below alone
    analytic: float  # the gradient under test
    numeric: float  # the slope that was settled on
    uncertainty: float  # how far that may be off
    allowed: float  # the tolerance
    first_step: float  # the step that is tried first, and by which most elements are judged


@dataclass(frozen=True)
class Figure:
    """The data of a pair's pictures, at the sample point that shows most."""

    point: int  # index of the sample point
    shape: tuple[int, int]  # rows and columns of the whole Jacobian
    map: HeatMap | None = None  # its heat maps; `None` for random probes, which see few elements
    ladder: Ladder | None = None  # the ladder of the worst element; `None` if it couldn't be evaluated


@dataclass(frozen=True)
class Cause:
    """What may be behind a pair's error."""

    diagnosis: tuple[str, ...] = ()  # what may be the cause, the likeliest first
    # where the `stop_gradient`s are that change the derivative, if the spec doesn't say whether they are
    # intended
    stops: tuple[str, ...] = ()
    stop_change: float | None = None  # by what share of the derivative they change it, at most
    # where it is wrong beside the sample points: each input or element that differs, and its value in YAML
    point: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class PairResult:
    """The verdict on one output with one input, over all elements and all sample points."""

    label: str  # `dOUT/dIN`
    output: str
    input: str
    status: Status
    connected: bool = True  # whether its gradient is a tensor, rather than `None`
    note: str = ""  # a few words for the table: "as expected", "zero-size: shape only", "3 of 16 elements"
    message: str = ""  # why the status isn't `passed`, and what to do
    order: int = 1  # 2 where the output is itself a gradient
    # how a gradient is wrong, expected or not: "value", "none", "nonfinite", "form", "raises", or several of
    # them joined by "and"
    mismatch: str = ""
    undecided: str = ""  # why it is inconclusive, in one word: "jump", "noise", "all_zero", "stop_gradient"
    numbers: PairNumbers = PairNumbers()
    judged_by: NumericSide = NumericSide()
    cause: Cause = Cause()
    fingerprint: Fingerprint | None = None  # what a baseline records about gradient and forward
    figure: Figure | None = None  # the data of its pictures, if they were requested
    # both Jacobians as arrays at the point that shows most, the output's dimensions before the input's, where
    # a function was given in Python, each element was compared and there aren't too many; for a complex
    # output with a first axis for the upstreams 1 and 1j
    analytic: Any = field(default=None, compare=False, repr=False)
    numeric: Any = field(default=None, compare=False, repr=False)

    @property
    def is_open(self) -> bool:
        """Whether the numbers can't tell; a known fault may be of that kind."""
        return self.status in OPEN or (self.status is Status.KNOWN and bool(self.undecided))

    def explained(self, *diagnosis: str) -> PairResult:
        """Return the result with these lines as its diagnosis."""
        return replace(self, cause=replace(self.cause, diagnosis=diagnosis))

    @property
    def error(self) -> float:
        """The worst element's absolute error; if random probes judged, the largest relative error."""
        return self.numbers.max_abs_error if self.numbers.worst_error is None else self.numbers.worst_error

    @property
    def bound(self) -> float:
        """The bound on that error; for an inconclusive pair only the tolerance."""
        numbers = self.numbers
        if self.is_open:
            return numbers.allowed
        return numbers.allowed + numbers.uncertainty if numbers.worst_bound is None else numbers.worst_bound

    @property
    def ratio(self) -> float | None:
        """That error as a share of the bound; `None` for an inconclusive pair."""
        if self.is_open:
            return None
        if self.error == 0:
            return 0.0
        return self.error / self.bound if self.bound else math.inf

    @property
    def relative_error(self) -> float | None:
        """How far a wrong gradient is off at its worst element, as a share of the numeric derivative.

        It is `None` if nothing is wrong, or if the numeric derivative can't be told from zero.
        """
        worst = self.numbers.worst
        if worst is None or not self.numbers.wrong_elements:
            return None
        off = abs(worst.analytic - worst.numeric)
        size = abs(worst.numeric)
        is_known = size > worst.uncertainty and math.isfinite(off) and math.isfinite(size)
        return off / size if is_known else None


# The outcomes of a corruption.
CAUGHT, LEFT_OPEN, MISSED, HIDES = "caught", "undecided", "missed", "out of sight"


@dataclass(frozen=True)
class Mutant:
    """The outcome of one corruption of one pair's gradient."""

    pair: str  # the pair's label
    corruption: str  # one of `words.CORRUPTIONS`
    # `caught` (called a mismatch), `undecided` (which fails a run too), `missed`, or `out of sight`: no point
    # of the case could show it, so it wasn't tried
    outcome: str
    order: int = 1  # 2 where the output is itself a gradient
    change: float = 0.0  # the error of the worst element
    allowed: float = 0.0
    kinks: int = 0  # how many elements passed for lying between one-sided slopes
    message: str = ""  # more about the outcome


@dataclass(frozen=True)
class CheckResult:
    """The verdict of one structural check on one case."""

    name: str
    status: Status
    message: str = ""


@dataclass(frozen=True)
class CaseError:
    """Why a case couldn't be checked: a stable word, a message with the remedy, and the user's own frames."""

    kind: str
    message: str
    traceback: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counterexample:
    """A point at which a gradient is wrong."""

    inputs: tuple[tuple[str, str], ...]  # the name and the values of each drawn input, as in a spec


@dataclass(frozen=True)
class SearchResult:
    """What a search for a wrong gradient tried, and what it found."""

    seconds: float  # how long it took
    points: int  # how many points were tried
    judged: int  # how many of them were judged
    seen: int = 0  # how many sides of branches were seen
    sides: int = 0  # how many there are
    # the largest disagreement of gradient and differences along a random direction, as a share. At a kink,
    # right gradients disagree too.
    largest: float = 0.0
    spoilt: int = 0  # points at which a gradient wasn't finite though the function was
    found: Counterexample | None = None  # the point where it is wrong; `None` if nothing was found
    refused: str = ""  # why the case couldn't be searched; empty if it was


@dataclass(frozen=True)
class UndifferentiatedOutput:
    """An output that has no gradient, as it holds whole numbers."""

    output: str
    dtype: str


@dataclass(frozen=True)
class HowChecked:
    """How a case was checked."""

    numeric_dtype: str = ""  # that of the numeric derivative, if it isn't the case's: "float64"
    reason: str = ""  # the spec's own `reason`
    samples: int = 0  # points at which it was checked; 0 if it wasn't
    # points checked in addition to the samples, for sides of branches that these don't take
    chosen_points: int = 0
    checks_off: tuple[str, ...] = ()  # structural checks that the spec turns off
    held: tuple[str, ...] = ()  # each stop_gradient that was held while the inputs moved, with its place
    not_differentiated: tuple[UndifferentiatedOutput, ...] = ()


@dataclass(frozen=True)
class Printed:
    """What the user's code printed."""

    lines: tuple[str, ...] = ()  # the last lines
    file: str = ""  # the file with all of them, if there are more


@dataclass(frozen=True)
class Execution:
    """Where a case ran, and what that cost and printed."""

    duration_s: float = 0.0
    reproduce: str = ""
    host: str = ""  # the machine of a cluster that it ran on
    worker: str = ""  # the cluster's name for the worker that it ran in
    work: Work = field(default_factory=Work)
    parts_s: dict[str, float] = field(default_factory=dict)  # processor time of each part of the check
    output: Printed | None = None  # what the user's code printed, if anything was captured


@dataclass(frozen=True)
class FilesRead:
    """What of the user's files a case read or would have read, by absolute paths."""

    files: frozenset[str]  # opened or imported; also places in which a module was looked for in vain
    folders: frozenset[str] = frozenset()  # listed


@dataclass(frozen=True)
class CodeSeen:
    """What of the user's code a case ran."""

    source: str = ""  # "path:line" of the gradient function; empty where its module wasn't imported
    gradients_seen: dict[str, int] = field(default_factory=dict)  # calls of registered gradients, by op type
    custom_gradients: tuple[GradientRun, ...] = ()  # hand-written gradients, and the pairs that ran them
    branches: tuple[Branch, ...] = ()  # of forward and gradient, with the sides that points took; in graphs
    sides_unknown: str = ""  # why its branches weren't examined, or not all of them
    read: FilesRead | None = None  # `None` if that isn't known


@dataclass(frozen=True)
class CaseResult:
    """Everything found about one case in one mode."""

    op: str
    case: str
    spec: str  # "path:line"
    mode: str
    dtype: str
    status: Status
    error: CaseError | None = None
    how: HowChecked = HowChecked()
    ran: Execution = field(default_factory=Execution)
    seen: CodeSeen = field(default_factory=CodeSeen)
    mutants: tuple[Mutant, ...] = ()  # where gradients were corrupted on purpose
    search: SearchResult | None = None  # if a search was requested
    warnings: tuple[str, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    pairs: tuple[PairResult, ...] = ()
    full_op: str = ""  # `file::op` where another file of the run has an op of this name

    @property
    def file(self) -> str:
        """The file of its spec."""
        return self.spec.rpartition(":")[0] or self.spec

    def printed(self, lines: Sequence[str], file: str) -> CaseResult:
        """Return the result with the last lines that the user's code printed, and the file of all lines."""
        output = Printed(tuple(lines), file) if lines or file else None
        return replace(self, ran=replace(self.ran, output=output))

    def having_read(self, read: FilesRead | None) -> CaseResult:
        """Return the result with what of the user's files the case read."""
        return replace(self, seen=replace(self.seen, read=read))

    @property
    def skipped(self) -> bool:
        """Whether anything of the case was skipped."""
        statuses = {*(pair.status for pair in self.pairs), *(check.status for check in self.checks)}
        return Status.SKIPPED in {self.status, *statuses}

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies its case in all of its modes: op (with its file if need be), case and dtype."""
        return self.full_op or self.op, self.case, self.dtype

    @property
    def mode_key(self) -> tuple[str, str, str, str]:
        """What identifies it: its case, and the mode."""
        return *self.key, self.mode

    @property
    def is_for_another_version(self) -> bool:
        """Whether it was skipped because its spec is for other versions of TensorFlow."""
        return self.status is Status.SKIPPED and any(check.name == VERSION_CHECK for check in self.checks)


@dataclass(frozen=True)
class Policy:
    """What counts as a failure beside what is wrong or undecided: the options of these names."""

    strict: bool = False  # whether everything skipped counts (exit 3)
    strict_precision: bool = False  # whether every loss of digits counts (exit 1)
    branch_fail_under: float | None = None  # the share of sides, in percent, below which the run fails

    def counts(self, status: Status) -> bool:
        """Whether a pair or a check of this status fails the run."""
        return status in FAILING | UNDECIDED or (self.strict and status is Status.SKIPPED)

    def is_fine(self, case: CaseResult) -> bool:
        """Whether nothing about a case would fail the run."""
        if not case.is_for_another_version and case.status not in GREEN | EXCUSED:
            return False
        return not (self.strict and case.skipped) and not (self.strict_precision and case.warnings)

    def is_failure(self, case: CaseResult) -> bool:
        """Whether a case fails the run by itself; a case skipped in one mode may be checked in another."""
        return not self.is_fine(case) and (self.strict or case.status is not Status.SKIPPED)

    def exit_code(self, cases: Collection[CaseResult], *, is_part: bool = False) -> int:
        """Return the exit code for some cases, or a shard's: 1 a failure, 3 something undecided, else 0."""
        statuses = {case.status for case in cases}
        if statuses & FAILING or (self.strict_precision and any(case.warnings for case in cases)):
            return 1
        if statuses & UNDECIDED or find_unchecked(cases, is_part=is_part):
            return 3
        return 3 if self.strict and any(case.skipped for case in cases) else 0


def find_unchecked(cases: Collection[CaseResult], *, is_part: bool = False) -> list[CaseResult]:
    """Return the cases that were skipped in every requested mode.

    Those for other versions don't count beside cases that ran, or in a part of a run.
    """
    skipped = [case for case in cases if case.status is Status.SKIPPED]
    if is_part or len(skipped) < len(cases):
        skipped = [case for case in skipped if not case.is_for_another_version]
    checked = {(case.spec, *case.key) for case in cases if case.status is not Status.SKIPPED}
    return [case for case in skipped if (case.spec, *case.key) not in checked]


ZERO_SIZE = "zero-size: shape only"  # the note of a pair without elements, of which only the form is checked
_NO_ELEMENTS = (
    "no case that ran has an element of this pair: its shape alone was checked; add a case with elements."
)


def has_empty_pairs(case: CaseResult) -> bool:
    """Whether some pair's verdict depends on other cases of the op: one without elements tested nothing."""
    is_checked = "all_zero" not in case.how.checks_off
    return is_checked and any(pair.note == ZERO_SIZE for pair in case.pairs)


def judge_empty_pairs(case: CaseResult, cases: Iterable[CaseResult]) -> CaseResult:
    """Return a case in which a pair without elements is undecided, unless another case's pair has some.

    Args:
        cases: those that ran; those of other ops don't count.
    """
    if not has_empty_pairs(case):
        return case
    op = (case.spec, case.op)
    tested = {
        pair.label
        for other in cases
        if (other.spec, other.op) == op
        for pair in other.pairs
        if pair.numbers.elements
    }
    pairs = tuple(
        replace(pair, status=Status.INCONCLUSIVE, undecided="all_zero", message=_NO_ELEMENTS)
        if (pair.note, pair.status) == (ZERO_SIZE, Status.PASSED) and pair.label not in tested
        else pair
        for pair in case.pairs
    )
    return replace(case, pairs=pairs, status=case_status(pairs, case.checks))


@dataclass(frozen=True)
class Machine:
    """What a run depends on beside TensorFlow and Python, as far as it is known."""

    keras_version: str = ""
    numpy_version: str = ""
    platform: str = ""


@dataclass(frozen=True, repr=False)
class Report:
    """A whole run."""

    gradcheck_version: str
    tensorflow_version: str
    python_version: str
    seed: int
    cases: tuple[CaseResult, ...]
    duration_s: float = 0.0
    interrupted: bool = False
    notices: tuple[str, ...] = field(default=())
    policy: Policy = Policy()  # what it counts as a failure
    unchecked: tuple[str, ...] = ()  # what should have been run and wasn't
    baseline: tuple[BaselineFinding, ...] = ()
    shard: Shard | None = None
    selection: Selection | None = None  # what was requested, if that is known
    machine: Machine = Machine()
    coverage: GradientCoverage | None = None  # with `--cov`

    def __bool__(self) -> bool:
        """Whether everything is right: the exit code is 0."""
        return self.exit_code == 0

    def __str__(self) -> str:
        """Return the table that `gradcheck run` prints."""
        # By name: results know nothing of reports.
        return str(import_module("gradcheck_cli.reporting.report_text").render_report(self))

    def __repr__(self) -> str:
        """Return the outcome in a few words: all that a failed `assert` shows."""
        counts = {str(status): self.summary[str(status)] for status in Status}
        words = [f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count]
        return f"<gradcheck report: {', '.join(words) or 'nothing checked'}; exit code {self.exit_code}>"

    def _repr_html_(self) -> str:
        """Return the page of `--report html` in a frame, so that its styles stay out of the notebook."""
        # By name: the page is a feature, which results know nothing of.
        page = str(import_module("gradcheck_cli.reporting.formats").render("html", self, Path.cwd()))
        return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:32em;border:0"></iframe>'

    @property
    def facts(self) -> dict[str, str]:
        """The versions, platform and seed of the run, by name, as far as they are known."""
        all_facts = {
            "gradcheck": self.gradcheck_version,
            "TensorFlow": self.tensorflow_version,
            "Keras": self.machine.keras_version,
            "NumPy": self.machine.numpy_version,
            "Python": self.python_version,
            "platform": self.machine.platform,
            "seed": str(self.seed),
        }
        return {name: fact for name, fact in all_facts.items() if fact}

    @property
    def summary(self) -> dict[str, int]:
        """Count ops (`specs`), cases, pairs, pairs by status, and structural checks that failed.

        A case that ended in an error has no pairs: it counts once under `error`. A case that was skipped
        before it had any pairs (because of its mode) counts once under `skipped`.
        """
        statuses = Counter(pair.status for case in self.cases for pair in case.pairs)
        statuses[Status.ERROR] += sum(case.error is not None for case in self.cases)
        statuses[Status.SKIPPED] += sum(
            case.status is Status.SKIPPED and not case.pairs for case in self.cases
        )
        return {
            "specs": len({case.spec for case in self.cases}),
            "cases": len(self.cases),
            "pairs": sum(len(case.pairs) for case in self.cases),
            **{str(status): statuses[status] for status in Status},
            "failed_checks": sum(
                check.status in FAILING | UNDECIDED for case in self.cases for check in case.checks
            ),
        }

    @property
    def evaluations_per_element(self) -> float:
        """How many evaluations of the forward an input element cost on average; 0 if there were none."""
        spent: dict[tuple[int, str], tuple[int, int]] = {}
        for case_index, case in enumerate(self.cases):
            for pair in case.pairs:
                key = (case_index, pair.input)
                spent[key] = max(spent.get(key, (0, 0)), (pair.judged_by.evaluations, pair.judged_by.columns))
        columns = sum(columns for _, columns in spent.values())
        return sum(evaluations for evaluations, _ in spent.values()) / columns if columns else 0.0

    @property
    def exit_code(self) -> int:
        """The process's exit code: 130 interrupted, 1 a failure, 3 something undecided, else 0."""
        if self.interrupted:
            return 130
        code = self.policy.exit_code(self.cases, is_part=self.shard is not None)
        if code == 1 or any(finding.is_failure for finding in self.baseline):
            return 1
        # A single shard ran only a part: the whole is judged after shards are merged.
        return 3 if self.unchecked or (self.shard is None and self.falls_short) else code

    @property
    def sides(self) -> tuple[int, int]:
        """How many sides of branches were seen in all cases, and how many there are."""
        return side_counts(branch for case in self.cases for branch in case.seen.branches)

    @property
    def falls_short(self) -> bool:
        """Whether too few gradients, or too few sides of branches, are covered."""
        return self.branches_fall_short or (self.coverage is not None and self.coverage.falls_short)

    @property
    def branches_fall_short(self) -> bool:
        """Whether too few sides of branches were seen, or none was examined at all."""
        seen, every = self.sides
        least = self.policy.branch_fail_under
        if least is None:
            return False
        if not every:
            return least > 0 and any(case.seen.sides_unknown for case in self.cases)
        return 100 * seen < least * every

    def is_fine(self, case: CaseResult) -> bool:
        """Whether nothing about a case would fail the run."""
        return self.policy.is_fine(case)


def count_nothing_left(report: Report) -> Report:
    """Return a whole run's report; if all that it found is ignored, that counts: it isn't right, either."""
    summary = report.summary
    if not summary["ignored"] or any(summary[str(status)] for status in GREEN | FAILING):
        return report
    text = "every pair is undecided and ignored: nothing was tested"
    return replace(report, unchecked=tuple(dict.fromkeys((*report.unchecked, text))))


def case_status(pairs: tuple[PairResult, ...], checks: tuple[CheckResult, ...]) -> Status:
    """Return the gravest status among a case's pairs and checks; `inconclusive` if there are no pairs."""
    if not pairs:
        statuses = {check.status for check in checks} & (FAILING | UNDECIDED | {Status.SKIPPED})
        return next((status for status in SEVERITY if status in statuses), Status.INCONCLUSIVE)
    # A passed check alone doesn't make a case green: its pairs must have passed.
    statuses = {pair.status for pair in pairs} | {
        check.status for check in checks if check.status is not Status.PASSED
    }
    if {pair.status for pair in pairs} == {Status.SKIPPED}:
        statuses.discard(Status.PASSED)
    return next(status for status in SEVERITY if status in statuses)
