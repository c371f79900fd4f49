"""What a structural check is, and what the checks of each stage look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from gradcheck_cli.checking.checks.pulled import Pulled
from gradcheck_cli.checking.ops.jacobian import Jacobian, PairKey
from gradcheck_cli.checking.ops.opener import Opener, Operations
from gradcheck_cli.checking.ops.operation import Operation
from gradcheck_cli.checking.pairs.pair_sample import PairSample
from gradcheck_cli.numerics.sparsity import Sparsity
from gradcheck_cli.results import CheckResult, PairResult
from gradcheck_cli.spec.case import Case, PairRule

View = TypeVar("View")


@dataclass(frozen=True)
class Check(Generic[View]):
    """A structural check.

    Attributes:
        name: its name in the spec and in the report. Two checks may report under one name.
        looks_at: the type of its view, which says the stage at which it runs.
        run: returns its results; none where there is nothing to check. If several have one name, the report
            shows the first that didn't pass, else the first.
        can_be_off: whether a spec may turn it off.
    """

    name: str
    looks_at: type[View]
    run: Callable[[View], list[CheckResult]]
    can_be_off: bool = False


@dataclass(frozen=True)
class OpenedView:
    """A case at its first sample point, before anything is judged. A failing check ends the case."""

    case: Case
    op: Operation


@dataclass(frozen=True)
class JudgedView:
    """The pairs of one sample point, judged.

    Attributes:
        operations: the ops at the point.
        warnings: on the declared dtype's loss of precision.
        is_coarse: whether a pair was judged in less precision than declared.
    """

    case: Case
    operations: Operations
    warnings: Sequence[str]
    is_coarse: bool


@dataclass(frozen=True)
class UpstreamView:
    """Some outputs' vjps at one sample point, as functions of their upstreams.

    Attributes:
        pulled: each output's vjp.
        empty: pairs whose output has no elements.
        is_formula: whether `op` is the formula in float64, checked in addition to the declared op.
        is_last: whether no later view covers the gradients that are too small in this one.
    """

    case: Case
    op: Operation
    pulled: list[Pulled]
    empty: Sequence[PairKey] = ()
    is_formula: bool = False
    is_last: bool = True


@dataclass(frozen=True)
class PointView:
    """A case at one sample point.

    Attributes:
        opener: opens the case.
        sound: the pairs that are to be right.
        jacobians: those at hand of the declared op, and those of its formula.
        compared_at: index of the sample point at which another trace is compared.
        is_first: whether this is the first point.
    """

    case: Case
    opener: Opener[Any]
    operations: Operations
    sound: list[PairKey]
    jacobians: tuple[Mapping[PairKey, Jacobian | None], Mapping[PairKey, Jacobian | None]]
    sample: int
    compared_at: int
    is_first: bool

    @property
    def op(self) -> Any:  # noqa: ANN401 (an op of the opener's)
        """The declared op."""
        return self.operations.declared

    def with_sound(self, pairs: list[PairKey]) -> PointView:
        """Return the same view, in which these are the pairs that are to be right."""
        return replace(self, sound=pairs)


@dataclass(frozen=True)
class CaseView:
    """A case after all sample points.

    Attributes:
        op: the declared op at the first point.
        samples: the verdicts of the pairs that are to be right, at each sample point.
        pairs: every pair's result.
        unrun: the custom gradients that the forward called and no backward pass ran, and why.
    """

    case: Case
    op: Operation
    samples: Mapping[PairKey, list[PairSample]]
    pairs: tuple[PairResult, ...]
    unrun: Sequence[str] = ()


@dataclass(frozen=True)
class ModesView:
    """A case in its own mode, and openers for the other modes.

    Attributes:
        case: the case; its `mode` is that of `operations`.
        operations: the ops at the first sample point.
        rules: the spec's rule for each pair that is to be right.
        sparsities: the guessed ones; each mode's gradient must confirm them.
        sample: index of the sample point.
        others: mode -> a function that makes its opener.
    """

    case: Case
    operations: Operations
    rules: Mapping[PairKey, PairRule | None]
    sparsities: Mapping[PairKey, Sparsity]
    sample: int
    others: Mapping[str, Callable[[], Any]] = field(default_factory=dict)


AnyView = OpenedView | JudgedView | UpstreamView | PointView | CaseView | ModesView
