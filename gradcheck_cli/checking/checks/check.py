"""What a structural check is, and what the checks of each stage look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from gradcheck_cli.checking.checks.output_vjp import OutputVjp
from gradcheck_cli.checking.ops.jacobian import Jacobian, PairKey
from gradcheck_cli.checking.ops.opener import Opener, Operations
from gradcheck_cli.checking.ops.operation import Operation
from gradcheck_cli.checking.pairs.pair_sample import PairSample
from gradcheck_cli.numerics.sampling import Sparsity
from gradcheck_cli.results import CheckResult, PairResult, Status
from gradcheck_cli.spec.case import Case, PairRule

View = TypeVar("View")


@dataclass(frozen=True)
class Check(Generic[View]):
    """A structural check.

    Attributes:
        run: returns its results; none where there is nothing to check. If several have one name, the report
            shows the first that didn't pass, else the first.
    """

    name: str  # its name in the spec and in the report. Two checks may report under one name.
    looks_at: type[View]  # the type of its view, which says the stage at which it runs
    run: Callable[[View], list[CheckResult]]
    can_be_off: bool = False  # whether a spec may turn it off


def report(name: str, fault: str, status: Status = Status.MISMATCHED) -> CheckResult:
    """Return a check's result: passed where there is no fault."""
    return CheckResult(name, status if fault else Status.PASSED, fault)


@dataclass(frozen=True)
class OpenedView:
    """A case at its first sample point, before anything is judged. A failing check ends the case."""

    case: Case
    op: Operation


@dataclass(frozen=True)
class JudgedView:
    """The pairs of one sample point, judged."""

    case: Case
    operations: Operations  # the ops at the point
    warnings: Sequence[str]  # on the declared dtype's loss of precision
    is_coarse: bool  # whether a pair was judged in less precision than declared


@dataclass(frozen=True)
class UpstreamView:
    """Some outputs' vjps at one sample point, as functions of their upstreams."""

    case: Case
    op: Operation
    pulled: list[OutputVjp]  # each output's vjp
    empty: Sequence[PairKey] = ()  # pairs whose output has no elements
    is_formula: bool = False  # whether `op` is the formula in float64, checked in addition to the declared op
    is_last: bool = True  # whether no later view covers the gradients that are too small in this one


@dataclass(frozen=True)
class PointView:
    """A case at one sample point.

    Attributes:
        jacobians: those at hand of the declared op, and those of its formula.
    """

    case: Case
    opener: Opener[Any]  # opens the case
    operations: Operations
    expected_right: list[PairKey]  # the pairs that are to be right
    jacobians: tuple[Mapping[PairKey, Jacobian | None], Mapping[PairKey, Jacobian | None]]
    sample: int
    compared_at: int  # index of the sample point at which another trace is compared
    is_first: bool  # whether this is the first point

    @property
    def op(self) -> Any:  # noqa: ANN401 (an op of the opener's)
        """The declared op."""
        return self.operations.declared

    def expecting_right(self, pairs: list[PairKey]) -> PointView:
        """Return the same view, in which these are the pairs that are to be right."""
        return replace(self, expected_right=pairs)


@dataclass(frozen=True)
class CaseView:
    """A case after all sample points.

    Attributes:
        samples: the verdicts of the pairs that are to be right, at each sample point.
        unrun: the custom gradients that the forward called and no backward pass ran, and why.
    """

    case: Case
    op: Operation  # the declared op at the first point
    samples: Mapping[PairKey, list[PairSample]]
    pairs: tuple[PairResult, ...]  # every pair's result
    unrun: Sequence[str] = ()


@dataclass(frozen=True)
class ModesView:
    """A case in its own mode, and openers for the other modes.

    Attributes:
        others: mode -> a function that makes its opener.
    """

    case: Case  # the case; its `mode` is that of `operations`
    operations: Operations  # the ops at the first sample point
    rules: Mapping[PairKey, PairRule | None]  # the spec's rule for each pair that is to be right
    sparsities: Mapping[PairKey, Sparsity]  # the guessed ones; each mode's gradient must confirm them
    sample: int  # index of the sample point
    others: Mapping[str, Callable[[], Any]] = field(default_factory=dict)


AnyView = OpenedView | JudgedView | UpstreamView | PointView | CaseView | ModesView
