"""What a run found, as frozen values: pairs, checks, cases, reports; and the exit code they add up to."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from gradcheck_cli.covered import Branch, GradientCoverage, GradientRun, side_counts
from gradcheck_cli.figure import Figure  # noqa: TC001 (reports are read by this type)
from gradcheck_cli.gate import (  # noqa: TC001 (reports are read by these types)
    BaselineFinding,
    Fingerprint,
    Selection,
    Shard,
    Tolerance,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class Status(str, Enum):
    """Outcome of a pair, a check or a case; the words are a contract (DESIGN, findings)."""

    PASSED = "passed"
    MISMATCHED = "mismatched"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    SKIPPED = "skipped"
    EXPECTED_MISMATCH = "expected_mismatch"
    UNEXPECTED_PASS = "unexpected_pass"  # noqa: S105 (a status, not a password)

    def __str__(self) -> str:
        """Return the word itself, as it stands in every report."""
        return self.value


# The first of these that occurs among a case's pairs and checks is the case's own status.
SEVERITY = (
    Status.MISMATCHED,
    Status.UNEXPECTED_PASS,
    Status.ERROR,
    Status.INCONCLUSIVE,
    Status.EXPECTED_MISMATCH,
    Status.PASSED,
    Status.SKIPPED,
)

# The check under which a case is skipped that its spec doesn't mean for the TensorFlow that is here.
VERSION_CHECK = "tensorflow"

FAILING = frozenset({Status.MISMATCHED, Status.UNEXPECTED_PASS})  # exit 1
UNDECIDED = frozenset({Status.ERROR, Status.INCONCLUSIVE})  # exit 3


@dataclass(frozen=True)
class WorstElement:
    """The element with the largest ratio of error to bound.

    Indices are those of the output's and the input's own shape. Of a complex tensor the real and the
    imaginary part are elements of their own: `output_part` and `input_part` say which ("re", "im", or ""
    for a real tensor). `uncertainty` bounds the numeric value's own error.
    """

    output_index: tuple[int, ...]
    input_index: tuple[int, ...]
    analytic: float | complex
    numeric: float | complex
    uncertainty: float
    output_part: str = ""
    input_part: str = ""


@dataclass(frozen=True)
class PairResult:
    """The verdict on one output with one input, over all elements and all sample points.

    `allowed` and `uncertainty` belong to the worst element. `note` is a few words for the table
    ("as expected", "zero-size: shape only", "3 of 16 elements"); `message` explains a status that
    isn't `passed`, remedy included. `reference_dtype` is the dtype in which the numeric derivative
    was taken, or as good as which it was; `not_float64` says why that isn't float64. `evaluations` counts
    evaluations of the forward, `columns` the input's real elements that they were for, over all samples;
    pairs of one input share both. Where random probes judged, `miss_probability` is the chance that an error
    of the relative size `miss_size` in one element was missed; errors and `allowed` are then relative to the
    probes' own size. `order` is 2 where the output is itself a gradient. `stops` says where the
    `stop_gradient`s are that change the derivative, by up to `stop_change` of it, where the spec leaves open
    whether they are meant. `mismatch` says in what way a gradient is wrong, expected or not: "value", "none",
    "nonfinite", "form", "raises", or several of them joined by "and". `worst_error` and `worst_bound` (what
    was allowed, with what the numeric value may be off by) are those of the worst element, one at a kink left
    aside where all is right; `None` where they are `max_abs_error` and `allowed` with `uncertainty`.
    `undecided` says why a pair is inconclusive, in one word: "jump", "noise", "all_zero", "stop_gradient".
    `figure` is what pictures of it are drawn from, where somebody asked for them.
    """

    label: str
    output: str
    input: str
    status: Status
    connected: bool = True
    method: str = "central"
    reference_dtype: str = "float64"
    evaluations: int = 0
    columns: int = 0
    miss_probability: float | None = None
    miss_size: float | None = None
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    allowed: float = 0.0
    uncertainty: float = 0.0
    kinks: int = 0
    elements: int = 0
    wrong_elements: int = 0
    worst: WorstElement | None = None
    diagnosis: tuple[str, ...] = ()
    note: str = ""
    message: str = ""
    fingerprint: Fingerprint | None = None
    tolerance: Tolerance | None = None
    order: int = 1
    stops: tuple[str, ...] = ()
    stop_change: float | None = None
    not_float64: str = ""
    mismatch: str = ""
    undecided: str = ""
    worst_error: float | None = None
    worst_bound: float | None = None
    figure: Figure | None = None

    @property
    def error(self) -> float:
        """The worst element's error, absolute; of random probes the largest, relative."""
        return self.max_abs_error if self.worst_error is None else self.worst_error

    @property
    def bound(self) -> float:
        """What was allowed of that error: of what couldn't be decided the tolerance alone."""
        if self.status is Status.INCONCLUSIVE:
            return self.allowed
        return self.allowed + self.uncertainty if self.worst_bound is None else self.worst_bound

    @property
    def ratio(self) -> float | None:
        """That error as a share of what was allowed; `None` where it couldn't be decided."""
        if self.status is Status.INCONCLUSIVE:
            return None
        if self.error == 0:
            return 0.0
        return self.error / self.bound if self.bound else math.inf

    @property
    def relative_error(self) -> float | None:
        """How far a wrong gradient is off at its worst element, as a share of the numeric derivative.

        `None` where nothing is wrong, or the numeric derivative can't be told from zero.
        """
        if self.worst is None or not self.wrong_elements:
            return None
        off = abs(self.worst.analytic - self.worst.numeric)
        size = abs(self.worst.numeric)
        is_known = size > self.worst.uncertainty and math.isfinite(off) and math.isfinite(size)
        return off / size if is_known else None


# What becomes of a corruption.
CAUGHT, LEFT_OPEN, MISSED, HIDES = "caught", "undecided", "missed", "out of sight"


@dataclass(frozen=True)
class Mutant:
    """What became of one corruption of one pair's gradient.

    `outcome` is `caught` (called a mismatch), `undecided` (not right either, so that a run fails), `missed`,
    or `out of sight`: no point of the case could show it, and it wasn't tried. `change` is the error of the
    worst element, `allowed` what was allowed of it, `kinks` how many elements passed for lying between
    one-sided slopes.
    """

    pair: str
    corruption: str
    outcome: str
    order: int = 1
    change: float = 0.0
    allowed: float = 0.0
    kinks: int = 0
    message: str = ""


@dataclass(frozen=True)
class CheckResult:
    """The verdict of one structural check on one case."""

    name: str
    status: Status
    message: str = ""


@dataclass(frozen=True)
class CaseError:
    """Why a case couldn't be checked: a stable word, a message with the remedy, the user's own frames."""

    kind: str
    message: str
    traceback: tuple[str, ...] = ()


@dataclass
class Work:
    """What a case cost, in counts that don't depend on the machine.

    Attributes:
        traces: how often the user's code, or a gradient of it, was traced.
        batch_traces: how often a graph was traced into one that takes many points.
        calls: of traced graphs, each of one point or of many.
        points: evaluated in these calls, of the forward or of a gradient.
    """

    traces: int = 0
    batch_traces: int = 0
    calls: int = 0
    points: int = 0


@dataclass(frozen=True)
class CaseResult:
    """Everything found about one case in one mode."""

    op: str
    case: str
    spec: str  # "path:line"
    mode: str
    dtype: str
    status: Status
    duration_s: float
    reproduce: str
    numeric_dtype: str = ""  # where it isn't `dtype`: "float64"
    reason: str = ""  # the spec's own `reason`
    error: CaseError | None = None
    checks: tuple[CheckResult, ...] = ()
    pairs: tuple[PairResult, ...] = ()
    warnings: tuple[str, ...] = ()
    output: tuple[str, ...] = ()  # the last lines that the user's code printed, where they were caught
    output_file: str = ""  # where all of it is, where more is to be kept than those lines
    checks_off: tuple[str, ...] = ()  # structural checks that the spec turns off
    samples: int = 0  # points at which it is checked; 0 where it wasn't
    not_differentiated: tuple[tuple[str, str], ...] = ()  # outputs that have no gradient, with their dtypes
    source: str = ""  # "path:line" of the gradient function; empty where its module wasn't imported
    gradients_seen: dict[str, int] = field(default_factory=dict)  # calls of registered gradients, by op type
    held: tuple[str, ...] = ()  # each stop_gradient that was held as the inputs moved, and where it is
    mutants: tuple[Mutant, ...] = ()  # where gradients were corrupted on purpose
    host: str = ""  # the machine that it ran on, where that was a cluster's
    worker: str = ""  # the cluster's name of what it ran in
    work: Work = field(default_factory=Work)
    custom_gradients: tuple[GradientRun, ...] = ()  # hand-written gradients, and for which pairs they ran
    branches: tuple[Branch, ...] = ()  # of forward and gradient, with the sides that points took; in graphs
    chosen_points: int = 0  # checked besides the samples, since they take sides that these don't

    @property
    def skipped(self) -> bool:
        """Whether anything of the case was skipped."""
        found = {self.status, *(pair.status for pair in self.pairs), *(one.status for one in self.checks)}
        return Status.SKIPPED in found

    @property
    def is_for_another_version(self) -> bool:
        """Whether it was skipped since its spec means it for other versions of TensorFlow."""
        return self.status is Status.SKIPPED and any(check.name == VERSION_CHECK for check in self.checks)


@dataclass(frozen=True)
class Policy:
    """What a run counts as a failure beside what is wrong or undecided: the options of these names.

    Attributes:
        strict: whatever was skipped (exit 3).
        strict_precision: whatever loses digits (exit 1).
    """

    strict: bool = False
    strict_precision: bool = False

    def is_fine(self, case: CaseResult) -> bool:
        """Whether nothing about a case would fail the run."""
        if not case.is_for_another_version and case.status not in {Status.PASSED, Status.EXPECTED_MISMATCH}:
            return False
        return not (self.strict and case.skipped) and not (self.strict_precision and case.warnings)

    def is_failure(self, case: CaseResult) -> bool:
        """Whether a case fails the run by itself; one skipped in one mode may be checked in another."""
        return not self.is_fine(case) and (self.strict or case.status is not Status.SKIPPED)

    def exit_code(self, cases: Collection[CaseResult]) -> int:
        """Return the exit code that cases add up to: 1 a failure, 3 something undecided, else 0."""
        statuses = {case.status for case in cases}
        if statuses & FAILING or (self.strict_precision and any(case.warnings for case in cases)):
            return 1
        if statuses & UNDECIDED or _leave_one_unchecked(cases):
            return 3
        return 3 if self.strict and any(case.skipped for case in cases) else 0


def _leave_one_unchecked(cases: Iterable[CaseResult]) -> bool:
    """Whether some case was skipped in every mode: nothing unchecked is green.

    One that its spec means for other versions of TensorFlow isn't meant to be checked.
    """
    skipped, checked = set(), set()
    for case in cases:
        if case.is_for_another_version:
            continue
        key = (case.spec, case.op, case.case, case.dtype)
        if case.status is Status.SKIPPED:
            skipped.add((*key, case.mode))
        else:
            checked.add((*key, case.mode))
    return any(all(other[:-1] != one[:-1] or other[-1] == one[-1] for other in checked) for one in skipped)


@dataclass(frozen=True)
class Report:
    """A whole run.

    `strict` and `strict_precision` are the options of that name: they make failures of what was skipped
    (exit 3), and of what loses digits (exit 1). `unchecked` says what wasn't run that should have been;
    `selection` what was asked for, where that is known.
    """

    gradcheck_version: str
    tensorflow_version: str
    python_version: str
    seed: int
    cases: tuple[CaseResult, ...]
    duration_s: float = 0.0
    interrupted: bool = False
    notices: tuple[str, ...] = field(default=())
    strict: bool = False
    strict_precision: bool = False
    unchecked: tuple[str, ...] = ()
    baseline: tuple[BaselineFinding, ...] = ()
    shard: Shard | None = None
    selection: Selection | None = None
    keras_version: str = ""
    numpy_version: str = ""
    platform: str = ""

    @property
    def facts(self) -> dict[str, str]:
        """What the run was made with, by name, as far as that is known."""
        known = {
            "gradcheck": self.gradcheck_version,
            "TensorFlow": self.tensorflow_version,
            "Keras": self.keras_version,
            "NumPy": self.numpy_version,
            "Python": self.python_version,
            "platform": self.platform,
            "seed": str(self.seed),
        }
        return {name: value for name, value in known.items() if value}

    coverage: GradientCoverage | None = None  # with `--cov`
    branch_fail_under: float | None = None  # the least share of sides, in percent, that isn't a failure

    @property
    def summary(self) -> dict[str, int]:
        """Count ops (`specs`), cases, pairs, pairs by status, and structural checks that failed.

        A case in which nothing but an error came about has no pairs: it counts once under `error`; one that
        was skipped before there were any (a mode that it can't have), once under `skipped`.
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
        """How many evaluations of the forward an input element cost, on average; 0 if none were made."""
        spent: dict[tuple[int, str], tuple[int, int]] = {}
        for number, case in enumerate(self.cases):
            for pair in case.pairs:
                key = (number, pair.input)
                spent[key] = max(spent.get(key, (0, 0)), (pair.evaluations, pair.columns))
        columns = sum(columns for _, columns in spent.values())
        return sum(evaluations for evaluations, _ in spent.values()) / columns if columns else 0.0

    @property
    def exit_code(self) -> int:
        """The process's exit code: 130 interrupted, 1 a failure, 3 something undecided, else 0."""
        if self.interrupted:
            return 130
        code = self.policy.exit_code(self.cases)
        if code == 1 or any(finding.is_failure for finding in self.baseline):
            return 1
        # A shard alone ran a part: the whole is judged where shards are merged.
        return 3 if self.unchecked or (self.shard is None and self.falls_short) else code

    @property
    def policy(self) -> Policy:
        """What the run counts as a failure."""
        return Policy(self.strict, self.strict_precision)

    @property
    def sides(self) -> tuple[int, int]:
        """How many sides of branches were seen, over all cases, and how many there are to be seen."""
        return side_counts(branch for case in self.cases for branch in case.branches)

    @property
    def falls_short(self) -> bool:
        """Whether fewer gradients, or fewer sides of branches, are covered than must be."""
        return self.branches_fall_short or (self.coverage is not None and self.coverage.falls_short)

    @property
    def branches_fall_short(self) -> bool:
        """Whether fewer sides of branches were seen than must be."""
        seen, every = self.sides
        return self.branch_fail_under is not None and 100 * seen < self.branch_fail_under * every

    def is_fine(self, case: CaseResult) -> bool:
        """Whether nothing about a case would fail the run."""
        return self.policy.is_fine(case)


def case_status(pairs: tuple[PairResult, ...], checks: tuple[CheckResult, ...]) -> Status:
    """Return the gravest status among a case's pairs and checks; `inconclusive` if there are no pairs."""
    if not pairs:
        found = {check.status for check in checks} & (FAILING | UNDECIDED | {Status.SKIPPED})
        return next((status for status in SEVERITY if status in found), Status.INCONCLUSIVE)
    # A passed check alone doesn't make a case green: its pairs must be.
    found = {pair.status for pair in pairs} | {
        check.status for check in checks if check.status is not Status.PASSED
    }
    if {pair.status for pair in pairs} == {Status.SKIPPED}:
        found.discard(Status.PASSED)
    return next(status for status in SEVERITY if status in found)
