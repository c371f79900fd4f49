"""Corrupt the gradient of a case in known ways, and report which corruptions the case's checks catch.

Corruptions are mistakes that people make, and the smallest mistakes that a check must see. A corrupted
gradient is wrong in one way only, for every upstream, in the declared dtype and in float64 alike. Only right
gradients are corrupted: a wrong one would show nothing. The op is traced once and its results are cached, so
each corruption costs little more than its verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np

from gradcheck_cli.checking.check_case import FirstOrder, examine
from gradcheck_cli.checking.ops.jacobian import PairKey
from gradcheck_cli.checking.ops.operation import (
    Array,
    Gradients,
    OpenedOperation,
    Opener,
    Opening,
    Operation,
    Stack,
    TensorInfo,
)
from gradcheck_cli.checking.pairs.pair import label_of, pair_keys
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.numerics.problem import draw_eight_bits
from gradcheck_cli.numerics.sampling import Moves
from gradcheck_cli.results import CAUGHT, HIDES, LEFT_OPEN, MISSED, Mutant, PairResult, Status
from gradcheck_cli.spec.case import Case, first_order_alone, stated_rule
from gradcheck_cli.spec.values.moves import MOVED, moves
from gradcheck_cli.spec.words import CHECKS

FACTOR, SIGN, ELEMENT, UPSTREAM = "factor", "sign", "element", "upstream"
NONE, TRANSPOSE, SWAP, CONJUGATE = "none", "transpose", "swap", "conjugate"
SMALL, MEAN, AXIS, ROW, ZERO, BRANCH = "small", "mean", "axis", "row", "zero", "branch"
ONES, REPEATS, SIZE = "ones", "repeats", "size"
# Corruptions that a spec's points may be unable to show.
HIDDEN = frozenset({MEAN, AXIS, BRANCH, ONES, REPEATS, SIZE, TRANSPOSE, CONJUGATE})
_ONLY_HIDDEN = frozenset({ONES, REPEATS, SIZE})  # mistakes inside the op, which no corrupted vjp imitates
_OF_ONE_OUTPUT = frozenset({ROW, SMALL, BRANCH, MEAN, ELEMENT})  # they depend on one output's upstream
_FACTOR = 1.01
# A gradient that ignores its upstream can still have the right Jacobian; only these two checks find it.
_NEEDED = frozenset({"linearity", "zero_upstream"})
# A corruption that changes a gradient by less than this part of its largest element doesn't count, such as
# transposing a matrix that is symmetric up to rounding. 1 % of the largest element is 1000 times as much.
_NO_CHANGE = 1e-5
# The smallest element changes by at least 1 % of itself, and by at least twice its tolerance plus ten times
# its numeric uncertainty: beyond what `second_stage.decide` leaves undecided.
_LEAST, _CLAIMED, _UNSURE = 0.01, 2.0, 10.0
_ROWS = 3  # how many random upstreams show whether a corruption changes anything


def mutate(case: Case, opener: Opener[Any], samples: Sequence[int], corruptions: Sequence[str]) -> Findings:
    """Corrupt a case's gradients, and those of its second order where the spec has that checked.

    Returns:
        The findings without any corruption, with the outcome of each corruption (`mutants`) that changes a
        right gradient.

    Raises:
        CaseFailedError: the case can't be checked as it is.
    """
    caching = CachingOpener(opener)
    plain = first_order_alone(case, frozenset(CHECKS) - _NEEDED)
    first = caching.open(Opening(samples[0]))
    labels = [label_of(first, pair) for pair in pair_keys(first)] if case.judging.second_order else []
    judging = replace(plain.judging, second_order=case.judging.second_order)
    subject = _Subject(replace(plain, judging=judging), caching, samples, 1)
    findings = subject.findings
    mutants = list(subject.mutants(corruptions))
    if case.judging.second_order and findings.first is not None:
        try:
            vjp = caching.vjp(first)
            judging = replace(vjp.case.judging, checks_off=plain.judging.checks_off)
            second = _Subject(
                replace(vjp.case, judging=judging, wanted=plain.wanted),
                vjp,
                samples,
                2,
                FirstOrder(
                    labels,
                    findings.stops if case.reference is None or vjp.case.reference is not None else None,
                ),
            )
            findings = replace(findings, pairs=(*findings.pairs, *second.findings.pairs))
            mutants += second.mutants(corruptions)
        except CaseSkippedError:
            pass  # there is no second order: nothing to corrupt
    return replace(findings, mutants=tuple(mutants))


@dataclass
class _Subject:
    """What is corrupted: a case, or the vjp of one.

    `findings` are those without any corruption.
    """

    case: Case
    opener: CachingOpener
    samples: Sequence[int]
    order: int
    below: FirstOrder = FirstOrder()  # noqa: RUF009 (frozen)
    findings: Findings = field(init=False)

    def __post_init__(self) -> None:
        self.findings = examine(self.case, self.opener, self.samples, below=self.below)

    def mutants(self, corruptions: Sequence[str]) -> Iterable[Mutant]:
        """Yield the outcome of each corruption."""
        op = self.opener.open(Opening(self.samples[0]))
        right = {
            pair.label
            for pair in self.findings.pairs
            if pair.status is Status.PASSED and pair.connected and not self._is_zero(pair.label)
        }
        # The gradient of an output without elements is zero: there is nothing to corrupt.
        pairs = {
            label: pair
            for pair in pair_keys(op)
            if op.outputs[pair[0]].size and (label := label_of(op, pair)) in right
        }
        formula = self.opener.in_float64(op) or op
        flows = {output: _draw_upstreams(formula, output) for output, _ in pairs.values()}
        for corruption in corruptions:
            if corruption in _ONLY_HIDDEN:
                continue
            elements = _largest_elements(formula, pairs.values(), flows) if corruption == ELEMENT else {}
            shifts = self._shifts(pairs) if corruption == SMALL else {}
            input_indices = frozenset(input_index for _, input_index in pairs.values())
            wrong = Corruption(corruption, input_indices, elements, shifts)
            changed = {
                label: pair
                for label, pair in pairs.items()
                if pair in shifts or _has_effect(formula, wrong.corrupt(formula), pair, flows[pair[0]])
            }
            if changed:
                yield from self._try(wrong, changed)
        if self.order == 1:
            yield from self._find_hidden(pairs, corruptions)

    def _is_zero(self, label: str) -> bool:
        """Whether the spec says that a gradient is zero: what is left of it is rounding."""
        rule = stated_rule(self.case.expected.pairs, label)
        return rule is not None and rule.expect == "zero"

    def _shifts(self, pairs: Mapping[str, PairKey]) -> dict[PairKey, Shift]:
        """Return, for each pair's smallest element, the least change that its tolerance claims to detect."""
        shifts = {}
        for label, pair in pairs.items():
            judged = self.findings.judged[label]
            sample = judged.samples[0]
            size = np.abs(sample.analytic)
            usable = (size > 0) & (sample.verdict == Verdict.PASS)
            if judged.output.is_complex or judged.input_info.is_complex or not usable.any():
                continue
            at = np.unravel_index(int(np.argmin(np.where(usable, size, np.inf))), size.shape)
            claimed = _CLAIMED * float(sample.allowed[at]) + _UNSURE * float(sample.uncertainty[at])
            amount = max(_LEAST * float(size[at]), claimed)
            shifts[pair] = Shift(*sample.place(int(at[0]), int(at[1])), amount)
        return shifts

    def _find_hidden(self, pairs: Mapping[str, PairKey], corruptions: Sequence[str]) -> Iterable[Mutant]:
        """Yield the corruptions that no point could show."""
        if not HIDDEN & set(corruptions):
            return
        labels = {pair: label for label, pair in pairs.items()}
        stay_symmetric = {
            f"/d{tensor.name}"
            for argument in self.case.arguments
            for tensor in argument.tensors
            if tensor.symmetric
        }
        from gradcheck_cli.features.mutation.sites import sites_of, unseen_sites
        from gradcheck_cli.tensorflow_backend.graph_view import ForwardGraph, has_graph

        seen = []
        beside = [MOVED] * any(map(moves, self.case.tensors))  # which a check looks at as well, if it can
        for sample in (*self.samples, *beside):
            with suppress(CaseFailedError), self.opener.at(sample):
                op: Any = self.opener.open(Opening(sample))
                if not has_graph(op):
                    return
                seen.append(sites_of(ForwardGraph(op), tuple(labels)))
        for site in unseen_sites(seen):
            if site.corruption in corruptions:
                for pair in sorted(site.pairs):
                    if site.corruption == TRANSPOSE and labels[pair].endswith(tuple(stay_symmetric)):
                        continue  # for a matrix that stays symmetric, a transposed gradient is right
                    yield Mutant(labels[pair], site.corruption, HIDES, self.order, message=site.message)

    def _try(self, wrong: Corruption, pairs: Mapping[str, PairKey]) -> Iterable[Mutant]:
        remaining = dict(pairs)
        results: dict[str, Mutant] = {}
        # One point is enough for most corruptions; the rest get all points.
        for samples in (self.samples[:1], self.samples):
            if remaining:
                results |= self._outcomes(wrong, remaining, samples, by_check=False)
            remaining = {label: pair for label, pair in remaining.items() if results[label].outcome != CAUGHT}
        if wrong.name in {UPSTREAM, ROW}:
            # With one output element the Jacobian stays the same: linearity decides, input by input.
            for input_index in sorted({input_index for _, input_index in remaining.values()}):
                of_input = {label: pair for label, pair in remaining.items() if pair[1] == input_index}
                results |= self._outcomes(wrong, of_input, self.samples, by_check=True)
        return [results[label] for label in pairs]

    def _outcomes(
        self, wrong: Corruption, pairs: Mapping[str, PairKey], samples: Sequence[int], *, by_check: bool
    ) -> dict[str, Mutant]:
        input_indices = frozenset(input_index for _, input_index in pairs.values())
        opener = replace(self.opener, corruption=replace(wrong, input_indices=input_indices))
        corruption = wrong.name
        try:
            corrupted_findings = examine(self.case, opener, samples, below=self.below)
        except CaseFailedError as failure:
            return {
                label: Mutant(label, corruption, LEFT_OPEN, self.order, message=failure.message)
                for label in pairs
            }
        is_found = by_check and any(check.status is Status.MISMATCHED for check in corrupted_findings.checks)
        results = {pair.label: pair for pair in corrupted_findings.pairs}
        return {
            label: _make_mutant(corruption, results[label], self.order, is_found=is_found) for label in pairs
        }


def _make_mutant(corruption: str, result: PairResult, order: int, *, is_found: bool) -> Mutant:
    outcome = MISSED
    if result.status is Status.MISMATCHED or is_found:
        outcome = CAUGHT
    elif result.status is not Status.PASSED:
        outcome = LEFT_OPEN
    message = "" if outcome == CAUGHT else result.message
    return Mutant(
        result.label, corruption, outcome, order, result.error, result.bound, result.numbers.kinks, message
    )


def _draw_upstreams(op: Operation, output: int) -> Array:
    """Draw dense upstreams, by which a gradient and a corrupted one are compared."""
    info = op.outputs[output]
    generator = np.random.default_rng(output)
    shape = (_ROWS, info.size)
    drawn: Any = draw_eight_bits(generator, shape)
    if info.is_complex:
        drawn = drawn + 1j * draw_eight_bits(generator, shape)
    return cast("Array", drawn.reshape(_ROWS, *info.shape))


def _largest_elements(
    op: Operation, pairs: Iterable[PairKey], flows: Mapping[int, Array]
) -> dict[PairKey, int]:
    """Return the largest element of each pair's gradient, for an upstream."""
    elements = {}
    for output, input_index in pairs:
        gradient = op.vjp(output, flows[output])[input_index]
        if gradient is not None and gradient.size:
            sizes = np.nan_to_num(np.abs(gradient.reshape(_ROWS, -1))).max(axis=0)
            elements[output, input_index] = int(np.argmax(sizes))
    return elements


def _has_effect(op: Operation, wrong: Operation, pair: PairKey, flow: Array) -> bool:
    """Whether a corruption changes a gradient at all; replacing a non-zero gradient by `None` does."""
    output, input_index = pair
    before: Any = op.vjp(output, flow)[input_index]
    after: Any = wrong.vjp(output, flow)[input_index]
    if before is None or not before.size:
        return False
    largest = np.max(np.abs(before))
    moved = largest if after is None else np.max(np.abs(after - before))
    return bool(largest > 0 and moved > _NO_CHANGE * largest)


# Corrupted gradients.


@dataclass(frozen=True)
class Shift:
    """What is added to one element of a Jacobian of real tensors."""

    row: int
    column: int
    amount: float


Op = TypeVar("Op", bound=Operation)


@dataclass(frozen=True)
class Corruption:
    """One way of corrupting a gradient."""

    name: str  # one of `words.CORRUPTIONS`
    input_indices: frozenset[int]  # the inputs whose gradients are corrupted
    # per output and input, the element that `ELEMENT` changes, in C order
    elements: Mapping[PairKey, int] = field(default_factory=dict)
    # per output and input, the element of the Jacobian that `SMALL` changes, and by how much
    shifts: Mapping[PairKey, Shift] = field(default_factory=dict)

    def corrupt(self, op: Op) -> Op:
        """Return an op whose gradient is wrong in this way; otherwise it behaves as the op itself."""
        wrong = _WrongGradient(op, self)
        facts, forms = op.facts, op.forms
        return replace(
            op,
            vjp=wrong.vjp,
            joint_vjp=wrong.joint_vjp,
            vjp_beside=wrong.vjp_beside,
            facts=replace(facts, is_connected=wrong.is_connected, is_plain_chain=lambda *_: False),
            forms=replace(
                forms,
                at_unrounded_point=lambda: self._corrupt_form(forms.at_unrounded_point()),
                rounded_otherwise=lambda draw: self._corrupt_form(forms.rounded_otherwise(draw)),
            ),
        )

    def _corrupt_form(self, op: Operation | None) -> Operation | None:
        return None if op is None else self.corrupt(op)


@dataclass(frozen=True)
class _WrongGradient:
    """Pulls upstreams back wrongly."""

    inner: Operation
    how: Corruption

    def is_connected(self, output: int, input_index: int) -> bool:
        """Whether there is a gradient that isn't `None`."""
        if self.how.name == NONE and input_index in self.how.input_indices:
            return False
        return self.inner.facts.is_connected(output, input_index)

    def vjp(self, output: int, upstream: Stack) -> Any:
        """Pull upstreams of one output back, wrongly."""
        return self._corrupt(lambda upstreams: self.inner.vjp(output, upstreams[output]), {output: upstream})

    def vjp_beside(self, output: int, upstream: Array, point: Mapping[int, Array]) -> Gradients | None:
        """Pull upstreams of one output back at another point, wrongly."""

        def pull(upstreams: Mapping[int, Any]) -> Gradients | None:
            rows = {index: value[: len(upstreams[output])] for index, value in point.items()}
            return self.inner.vjp_beside(output, upstreams[output], rows)

        return self._corrupt(pull, {output: upstream})

    def joint_vjp(self, upstreams: Mapping[int, Array]) -> Any:
        """Pull upstreams of all differentiable outputs back at once, wrongly."""
        if self.how.name in _OF_ONE_OUTPUT:
            return self.inner.joint_vjp(upstreams)
        return self._corrupt(self.inner.joint_vjp, upstreams)

    def _corrupt(
        self, pull: Callable[[Mapping[int, Any]], Gradients | None], upstreams: Mapping[int, Stack]
    ) -> Gradients | None:
        """Pull upstreams back by a function of the right gradient, and corrupt the gradients."""
        gradients: Any = pull(upstreams)
        if gradients is None:
            return None
        wrong: Any
        output, upstream = next(iter(upstreams.items()))  # of a corruption of one output, the only ones
        if self.how.name == NONE:
            wrong = [None] * len(gradients)
        elif self.how.name == UPSTREAM:
            outputs = self.inner.outputs
            ones = {
                index: np.ones((1, *outputs[index].shape), complex if outputs[index].is_complex else float)
                for index in upstreams
            }
            without_upstream: Any = pull(ones)
            wrong = [
                gradient if gradient is None else np.repeat(gradient, len(upstream), axis=0)
                for gradient in without_upstream
            ]
        elif self.how.name == ROW:
            zeroed = self._written(output, upstream)
            zeroed.reshape(len(zeroed), -1)[:, :1] = 0
            wrong = pull({output: zeroed})
        elif self.how.name == SWAP:
            partners = [find_partner(self.inner.inputs, index) for index in range(len(gradients))]
            wrong = [None if partner is None else gradients[partner] for partner in partners]
            wrong = [own if other is None else other for own, other in zip(gradients, wrong, strict=True)]
        else:
            wrong = [
                gradient if gradient is None else self._change(gradient, (output, index), upstream)
                for index, gradient in enumerate(gradients)
            ]
        return [
            own if own is None or index not in self.how.input_indices else wrong[index]
            for index, own in enumerate(gradients)
        ]

    def _change(self, gradient: Any, pair: PairKey, upstream: Stack) -> Any:
        """Return one gradient, (B, *input.shape), corrupted."""
        if self.how.name in _CHANGES:
            return _CHANGES[self.how.name](gradient)
        if self.how.name == MEAN:  # the first size above 1, of the output, else the input
            sizes = (*self.inner.outputs[pair[0]].shape, *gradient.shape[1:])
            return gradient / next((size for size in sizes if size > 1), 1)
        changed = np.array(gradient, order="C")
        rows = changed.reshape(len(changed), -1)
        if self.how.name == ELEMENT:
            if pair in self.how.elements:
                rows[:, self.how.elements[pair]] *= _FACTOR
            return changed
        flow = self._written(pair[0], upstream)
        if self.how.name == BRANCH:
            return np.where(gradient == 0, flow, gradient) if gradient.shape == flow.shape else gradient
        if pair in self.how.shifts:  # `SMALL`
            shift = self.how.shifts[pair]
            rows[:, shift.column] += shift.amount * flow.reshape(len(flow), -1)[:, shift.row]
        return changed

    def _written(self, output: int, upstream: Stack) -> Any:
        """Return a copy of upstreams as (B, *output.shape), those given as moves of elements too."""
        written = upstream.points() if isinstance(upstream, Moves) else upstream
        return np.array(written, order="C").reshape(len(upstream), *self.inner.outputs[output].shape)


def _swap_other_axes(gradient: Array) -> Array:
    """Swap the first two axes of equal size, except the last two, which `TRANSPOSE` swaps."""
    shape = gradient.shape[1:]
    equal = [
        (first + 1, second + 1)
        for second in range(len(shape))
        for first in range(second)
        if shape[first] == shape[second] > 1 and (first, second) != (len(shape) - 2, len(shape) - 1)
    ]
    return np.swapaxes(gradient, *equal[0]) if equal else gradient


def _transpose(gradient: Array) -> Array:
    is_square = gradient.ndim > 2 and gradient.shape[-1] == gradient.shape[-2]  # noqa: PLR2004 (a stack of matrices)
    return np.swapaxes(gradient, -1, -2) if is_square else gradient


_CHANGES: dict[str, Callable[[Any], Any]] = {
    FACTOR: lambda gradient: gradient * _FACTOR,
    SIGN: lambda gradient: -gradient,
    TRANSPOSE: _transpose,
    CONJUGATE: np.conj,
    AXIS: _swap_other_axes,
    ZERO: np.zeros_like,
}


def find_partner(inputs: Sequence[TensorInfo], input_index: int) -> int | None:
    """Return the next input whose gradient could be confused with this one's; `None` where there is none."""
    own_info = inputs[input_index]
    alike = [
        candidate
        for candidate, info in enumerate(inputs)
        if candidate != input_index
        and (info.shape, info.dtype) == (own_info.shape, own_info.dtype)
        and info.is_differentiable
    ]
    return next((candidate for candidate in alike if candidate > input_index), alike[0] if alike else None)


# Ops that are asked once.

# How much memory one op's results may take together, in bytes. Beyond that they are computed again.
_MOST_BYTES = 2**26


def cached(op: Op) -> Op:
    """Return an op that caches its results; otherwise it behaves as the op itself."""
    results = _Results()

    @cache
    def hold(stops: frozenset[str]) -> Operation | None:
        held = op.forms.holding(stops)
        return None if held is None else cached(held)

    return replace(
        op,
        evaluate=results.of("evaluate", op.evaluate),
        vjp=results.of("vjp", op.vjp),
        joint_vjp=results.of("joint_vjp", op.joint_vjp),
        forms=replace(op.forms, holding=hold),
    )


class _Results:
    """The results of an op's functions."""

    def __init__(self) -> None:
        self._results: dict[Hashable, list[Any]] = {}
        self._size = 0

    def of(self, name: str, compute: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        """Return one of the functions, which is called once for the same arguments."""

        def look_up(*arguments: Any) -> list[Any]:
            key = (name, _key_of(arguments))
            if key in self._results:
                return list(self._results[key])
            result = compute(*arguments)
            self._size += sum(value.nbytes for value in result if value is not None)
            if self._size <= _MOST_BYTES:
                self._results[key] = result
            return list(result)

        return look_up


def _key_of(argument: Any) -> Hashable:
    """Return a key that is the same for equal arguments: indices, arrays, moves, or several of them."""
    if isinstance(argument, Moves):
        argument = (argument.base, argument.slot, argument.targets, argument.slots, argument.rows)
    if isinstance(argument, Mapping):
        argument = tuple(sorted(argument.items(), key=lambda item: item[0]))
    if isinstance(argument, tuple):
        return tuple(map(_key_of, argument))
    value = np.ascontiguousarray(argument)
    return value.shape, value.dtype.str, value.tobytes()


@dataclass
class CachingOpener:
    """Opens each op of a case once, and caches it; its gradients are corrupted if it has a corruption."""

    inner: Opener[Any]  # the opener that opens them
    corruption: Corruption | None = None
    opened: dict[Opening, OpenedOperation | None] = field(default_factory=dict)  # uncorrupted ones

    @property
    def case(self) -> Case:
        """The case that is opened."""
        return self.inner.case

    def open(self, opening: Opening) -> Any:
        """Open a form of the case; see `Opener`."""
        return self._look_up(opening, lambda: self.inner.open(opening))

    def in_float64(self, op: OpenedOperation) -> Any:
        """Open an opened op in float64; see `Opener`."""
        right = self.opened[op.opening]
        return self._look_up(replace(op.opening, dtype="float64"), lambda: self.inner.in_float64(right))

    def at(self, sample: int) -> AbstractContextManager[None]:
        """Give the weights their values at a sample point; see `Opener`."""
        return self.inner.at(sample)

    def turn_weights(self) -> None:
        """Move the weights the other way; see `Opener`."""
        self.inner.turn_weights()

    def retrace(self, op: OpenedOperation) -> Any:
        """Trace an opened op's gradient once more."""
        return self.inner.retrace(op)

    def vjp(self, op: OpenedOperation) -> CachingOpener:
        """Return the opener of an opened op's vjp."""
        return CachingOpener(self.inner.vjp(op))

    def written_ops(self, op: OpenedOperation, output: int, input_index: int) -> Sequence[Any] | None:
        """Return the ops of a pair's path whose gradients the user wrote; nobody wrote a corrupted one."""
        return None if self.corruption else self.inner.written_ops(op, output, input_index)

    def gradients_seen(self, op: OpenedOperation) -> Mapping[str, int]:
        """Return how often each registered gradient function was called when the op's vjp was built."""
        return {} if self.corruption else self.inner.gradients_seen(op)

    def unrun_gradients(self, op: OpenedOperation) -> Sequence[str]:
        """Say which custom gradients the forward called and no backward pass ran."""
        return () if self.corruption else self.inner.unrun_gradients(op)

    def _look_up(
        self, opening: Opening, compute: Callable[[], OpenedOperation | None]
    ) -> OpenedOperation | None:
        if opening not in self.opened:
            op = compute()
            self.opened[opening] = None if op is None else cached(op)
        op = self.opened[opening]
        # Nothing looks at the gradient of a reference.
        if op is None or self.corruption is None or opening.is_reference:
            return op
        return self.corruption.corrupt(op)
