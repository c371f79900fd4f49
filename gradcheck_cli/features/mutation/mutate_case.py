"""Corrupt the gradient of a case in known ways, and report which corruptions the case's checks catch.

Corruptions are mistakes that people make, and the smallest mistakes that a check must see. A corrupted
gradient is wrong in one way only, for every upstream, in the declared dtype and in float64 alike. Only right
gradients are corrupted: a wrong one would show nothing. The op is traced once and its results are cached, so
each corruption costs little more than its verdict.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
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
    OpForms,
    Stack,
    TensorInfo,
)
from gradcheck_cli.checking.pairs.pair import label_of, pair_keys
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.numerics.problem import draw_eight_bits
from gradcheck_cli.numerics.sampling import Moves
from gradcheck_cli.results import CAUGHT, HIDES, LEFT_OPEN, MISSED, Mutant, Status
from gradcheck_cli.spec.case import Case, first_order_alone, stated_rule
from gradcheck_cli.spec.values.moves import MOVED, moves
from gradcheck_cli.spec.words import CHECKS

# Mistakes inside the op, which no corrupted vjp imitates.
_ONLY_HIDDEN = frozenset({"ones", "repeats", "size"})
# Corruptions that a spec's points may be unable to show.
HIDDEN = _ONLY_HIDDEN | {"mean", "axis", "branch", "transpose", "conjugate"}
# They depend on one output's upstream.
_OF_ONE_OUTPUT = frozenset({"row", "small", "branch", "mean", "element"})
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
        with suppress(CaseSkippedError):  # there is no second order: nothing to corrupt
            vjp = caching.vjp(first)
            judging = replace(vjp.case.judging, checks_off=plain.judging.checks_off)
            has_stops = case.reference is None or vjp.case.reference is not None
            second = _Subject(
                replace(vjp.case, judging=judging, wanted=plain.wanted),
                vjp,
                samples,
                2,
                FirstOrder(labels, findings.stops if has_stops else None),
            )
            findings = replace(findings, pairs=(*findings.pairs, *second.findings.pairs))
            mutants += second.mutants(corruptions)
    return replace(findings, mutants=tuple(mutants))


@dataclass
class _Subject:
    """What is corrupted: a case, or the vjp of one.

    `findings` are those without any corruption.
    """

    case: Case
    opener: Any  # a `CachingOpener`
    samples: Sequence[int]
    order: int
    below: FirstOrder = FirstOrder()  # noqa: RUF009 (frozen)
    findings: Findings = field(init=False)

    def __post_init__(self) -> None:
        self.findings = examine(self.case, self.opener, self.samples, below=self.below)

    def mutants(self, corruptions: Sequence[str]) -> Iterable[Mutant]:
        """Yield the outcome of each corruption."""
        op = self.opener.open(Opening(self.samples[0]))
        rules = self.case.expected.pairs
        right = {
            pair.label
            for pair in self.findings.pairs
            if pair.status is Status.PASSED and pair.connected
            # Of a gradient that the spec says is zero, what is left is rounding.
            if (rule := stated_rule(rules, pair.label)) is None or rule.expect != "zero"
        }
        # The gradient of an output without elements is zero: there is nothing to corrupt.
        pairs = {
            label: pair
            for pair in pair_keys(op)
            if op.outputs[pair[0]].size and (label := label_of(op, pair)) in right
        }
        formula = self.opener.in_float64(op) or op
        flows = {output: _draw_upstreams(formula, output) for output, _ in pairs.values()}
        for name in corruptions:
            if name in _ONLY_HIDDEN:
                continue
            elements = _largest_elements(formula, pairs.values(), flows) if name == "element" else {}
            shifts = self._shifts(pairs) if name == "small" else {}
            input_indices = frozenset(input_index for _, input_index in pairs.values())
            wrong = Corruption(name, input_indices, elements, shifts)
            changed = {
                label: pair
                for label, pair in pairs.items()
                if pair in shifts or _has_effect(formula, wrong.corrupt(formula), pair, flows[pair[0]])
            }
            if changed:
                yield from self._try(wrong, changed)
        if self.order == 1 and HIDDEN & set(corruptions):
            yield from self._find_hidden(pairs, corruptions)

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
        from gradcheck_cli.features.mutation.sites import sites_of, unseen_sites
        from gradcheck_cli.tensorflow_backend.graph_view import ForwardGraph, has_graph

        labels = {pair: label for label, pair in pairs.items()}
        tensors = self.case.tensors
        stay_symmetric = tuple(f"/d{tensor.name}" for tensor in tensors if tensor.symmetric)
        seen = []
        beside = [MOVED] * any(map(moves, tensors))  # which a check looks at as well, if it can
        for sample in (*self.samples, *beside):
            with suppress(CaseFailedError), self.opener.at(sample):
                op: Any = self.opener.open(Opening(sample))
                if not has_graph(op):
                    return
                seen.append(sites_of(ForwardGraph(op), tuple(labels)))
        for site in unseen_sites(seen):
            for pair in sorted(site.pairs) if site.corruption in corruptions else ():
                # For a matrix that stays symmetric, a transposed gradient is right.
                if site.corruption != "transpose" or not labels[pair].endswith(stay_symmetric):
                    yield Mutant(labels[pair], site.corruption, HIDES, self.order, message=site.message)

    def _try(self, wrong: Corruption, pairs: Mapping[str, PairKey]) -> Iterable[Mutant]:
        remaining = dict(pairs)
        results: dict[str, Mutant] = {}
        # One point is enough for most corruptions; the rest get all points.
        for samples in (self.samples[:1], self.samples):
            if remaining:
                results |= self._outcomes(wrong, remaining, samples, by_check=False)
            remaining = {label: pair for label, pair in remaining.items() if results[label].outcome != CAUGHT}
        if wrong.name in {"upstream", "row"}:
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
        try:
            findings = examine(self.case, opener, samples, below=self.below)
        except CaseFailedError as failure:
            left_open = Mutant("", wrong.name, LEFT_OPEN, self.order, message=failure.message)
            return {label: replace(left_open, pair=label) for label in pairs}
        is_found = by_check and any(check.status is Status.MISMATCHED for check in findings.checks)
        mutants = {}
        for pair in (pair for pair in findings.pairs if pair.label in pairs):
            outcome = MISSED if pair.status is Status.PASSED else LEFT_OPEN
            outcome = CAUGHT if is_found or pair.status is Status.MISMATCHED else outcome
            numbers = pair.error, pair.bound, pair.numbers.kinks
            message = "" if outcome == CAUGHT else pair.message
            mutants[pair.label] = Mutant(pair.label, wrong.name, outcome, self.order, *numbers, message)
        return mutants


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
    # per output and input, the element that "element" changes, in C order
    elements: Mapping[PairKey, int] = field(default_factory=dict)
    # per output and input, the element of the Jacobian that "small" changes, and by how much
    shifts: Mapping[PairKey, Shift] = field(default_factory=dict)

    def corrupt(self, op: Op) -> Op:
        """Return an op whose gradient is wrong in this way; otherwise it behaves as the op itself."""
        facts, forms = op.facts, op.forms

        def is_connected(output: int, input_index: int) -> bool:
            is_cut = self.name == "none" and input_index in self.input_indices
            return not is_cut and facts.is_connected(output, input_index)

        def vjp(output: int, upstream: Stack) -> Any:
            return self._pull(op, lambda flows: op.vjp(output, flows[output]), {output: upstream})

        def vjp_beside(output: int, upstream: Array, point: Mapping[int, Array]) -> Gradients | None:
            def pull(flows: Mapping[int, Any]) -> Gradients | None:
                rows = {index: value[: len(flows[output])] for index, value in point.items()}
                return op.vjp_beside(output, flows[output], rows)

            return self._pull(op, pull, {output: upstream})

        def joint_vjp(upstreams: Mapping[int, Array]) -> Any:
            if self.name in _OF_ONE_OUTPUT:
                return op.joint_vjp(upstreams)
            return self._pull(op, op.joint_vjp, upstreams)

        def corrupted(make: Callable[..., Operation | None]) -> Callable[..., Operation | None]:
            return lambda *asked: None if (other := make(*asked)) is None else self.corrupt(other)

        # Each form has the wrong gradient, too: an excuse that looks at one mustn't find the right one.
        names = {form.name for form in fields(forms)} - {"place_of_rounding"}
        wrong: dict[str, Any] = {name: corrupted(getattr(forms, name)) for name in names}
        return replace(
            op,
            vjp=vjp,
            joint_vjp=joint_vjp,
            vjp_beside=vjp_beside,
            facts=replace(facts, is_connected=is_connected, library_gradients=lambda *_: 0),
            forms=OpForms(**wrong),
        )

    def _pull(
        self,
        op: Operation,
        pull: Callable[[Mapping[int, Any]], Gradients | None],
        upstreams: Mapping[int, Stack],
    ) -> Gradients | None:
        """Pull upstreams back by a function of an op's right gradient, and corrupt the gradients."""
        gradients: Any = pull(upstreams)
        if gradients is None:
            return None
        output, upstream = next(iter(upstreams.items()))  # of a corruption of one output, the only ones
        wrong: Any = [None] * len(gradients)
        if self.name == "upstream":
            ones = {
                index: np.ones((1, *info.shape), complex if info.is_complex else float)
                for index, info in enumerate(op.outputs)
                if index in upstreams
            }
            without: Any = pull(ones)
            wrong = [own if own is None else np.repeat(own, len(upstream), axis=0) for own in without]
        elif self.name == "row":
            zeroed = _write(op, output, upstream)
            zeroed.reshape(len(zeroed), -1)[:, :1] = 0
            wrong = pull({output: zeroed})
        elif self.name == "swap":
            partners = [find_partner(op.inputs, index) for index in range(len(gradients))]
            others = [None if partner is None else gradients[partner] for partner in partners]
            wrong = [own if other is None else other for own, other in zip(gradients, others, strict=True)]
        elif self.name != "none":
            wrong = [
                gradient if gradient is None else self._change(op, gradient, (output, index), upstream)
                for index, gradient in enumerate(gradients)
            ]
        return [
            own if own is None or index not in self.input_indices else wrong[index]
            for index, own in enumerate(gradients)
        ]

    def _change(self, op: Operation, gradient: Any, pair: PairKey, upstream: Stack) -> Any:
        """Return one gradient, (B, *input.shape), corrupted."""
        if self.name in _CHANGES:
            return _CHANGES[self.name](gradient)
        if self.name == "mean":  # the first size above 1, of the output, else the input
            sizes = (*op.outputs[pair[0]].shape, *gradient.shape[1:])
            return gradient / next((size for size in sizes if size > 1), 1)
        flow = _write(op, pair[0], upstream)
        if self.name == "branch":
            return np.where(gradient == 0, flow, gradient) if gradient.shape == flow.shape else gradient
        changed = np.array(gradient, order="C")
        rows = changed.reshape(len(changed), -1)
        if pair in self.elements:
            rows[:, self.elements[pair]] *= _FACTOR
        if pair in self.shifts:
            shift = self.shifts[pair]
            rows[:, shift.column] += shift.amount * flow.reshape(len(flow), -1)[:, shift.row]
        return changed


def _write(op: Operation, output: int, upstream: Stack) -> Any:
    """Return a copy of upstreams as (B, *output.shape), those given as moves of elements too."""
    written = upstream.points() if isinstance(upstream, Moves) else upstream
    return np.array(written, order="C").reshape(len(upstream), *op.outputs[output].shape)


def _swap_equal_axes(gradient: Array) -> Array:
    """Swap the first two axes of equal size, except the last two, which "transpose" swaps."""
    shape = gradient.shape
    equal = (
        (first, second)
        for second in range(len(shape))
        for first in range(1, second)
        if shape[first] == shape[second] > 1 and (first, second) != (len(shape) - 2, len(shape) - 1)
    )
    return np.swapaxes(gradient, *next(equal, (0, 0)))


def _transpose(gradient: Array) -> Array:
    is_square = gradient.ndim > 2 and gradient.shape[-1] == gradient.shape[-2]  # noqa: PLR2004 (a stack of matrices)
    return np.swapaxes(gradient, -1, -2) if is_square else gradient


_CHANGES: dict[str, Callable[[Any], Any]] = {
    "factor": lambda gradient: gradient * _FACTOR,
    "sign": lambda gradient: -gradient,
    "transpose": _transpose,
    "conjugate": np.conj,
    "axis": _swap_equal_axes,
    "zero": np.zeros_like,
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
    results: dict[bytes, list[Any]] = {}
    size = 0

    def once(name: str, compute: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        """Return one of the op's functions, which is called once for the same arguments."""

        def look_up(*arguments: Any) -> list[Any]:
            nonlocal size
            key = pickle.dumps((name, *arguments))
            result = results.get(key)
            if result is None:
                result = compute(*arguments)
                size += sum(value.nbytes for value in result if value is not None)
                if size <= _MOST_BYTES:
                    results[key] = result
            return list(result)

        return look_up

    @cache
    def hold(stops: frozenset[str]) -> Operation | None:
        held = op.forms.holding(stops)
        return None if held is None else cached(held)

    return replace(
        op,
        evaluate=once("evaluate", op.evaluate),
        vjp=once("vjp", op.vjp),
        joint_vjp=once("joint_vjp", op.joint_vjp),
        forms=replace(op.forms, holding=hold),
    )


@dataclass
class CachingOpener:
    """Opens each op of a case once, and caches it; its gradients are corrupted if it has a corruption.

    Else it does what the opener inside does; but nobody wrote a corrupted gradient.
    """

    inner: Opener[Any]  # the opener that opens them
    corruption: Corruption | None = None
    opened: dict[Opening, OpenedOperation | None] = field(default_factory=dict)  # uncorrupted ones

    def __getattr__(self, name: str) -> Any:
        written: dict[str, Any] = {"written_ops": None, "gradients_seen": {}, "unrun_gradients": ()}
        if self.corruption is not None and name in written:
            return lambda *_: written[name]
        return getattr(self.inner, name)

    def open(self, opening: Opening) -> Any:
        """Open a form of the case; see `Opener`."""
        return self._look_up(opening, lambda: self.inner.open(opening))

    def in_float64(self, op: OpenedOperation) -> Any:
        """Open an opened op in float64; see `Opener`."""
        right = self.opened[op.opening]
        return self._look_up(replace(op.opening, dtype="float64"), lambda: self.inner.in_float64(right))

    def vjp(self, op: OpenedOperation) -> CachingOpener:
        """Return the opener of an opened op's vjp."""
        return CachingOpener(self.inner.vjp(op))

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
