"""Corrupt the gradient of a case in known ways, and report which corruptions the case's checks catch.

The op is traced once and its answers are cached, so each corruption costs little more than its verdict. Only
right gradients are corrupted: a wrong one would show nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from gradcheck_cli.checking.check_case import FirstOrder, examine
from gradcheck_cli.checking.checks.all_checks import CHECKS
from gradcheck_cli.checking.ops.jacobian import PairKey
from gradcheck_cli.checking.ops.opener import Dtype, Opener, Opening
from gradcheck_cli.checking.ops.operation import Array, Operation, unseen_sites
from gradcheck_cli.checking.pairs.pair import label_of, pair_keys
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.features.mutation.corruptions import (
    ELEMENT,
    HIDDEN,
    ONES,
    REPEATS,
    ROW,
    SIZE,
    SMALL,
    TRANSPOSE,
    UPSTREAM,
    CachingOpener,
    Corruption,
    Shift,
)
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.numerics.random_vectors import draw_eight_bits
from gradcheck_cli.results import CAUGHT, HIDES, LEFT_OPEN, MISSED, Mutant, PairResult, Status
from gradcheck_cli.spec.case import Case, rule_for

# A gradient that ignores its upstream can still have the right Jacobian; only these two checks find it.
_NEEDED = frozenset({"linearity", "zero_upstream"})
# A corruption that changes a gradient by less than this part of its largest element doesn't count, such as
# transposing a matrix that is symmetric up to rounding. 1 % of the largest element is 1000 times as much.
_NO_CHANGE = 1e-5
_ONLY_HIDDEN = frozenset({ONES, REPEATS, SIZE})  # mistakes inside the op, which no corrupted vjp imitates
# The smallest element changes by at least 1 % of itself, and by at least twice its tolerance plus ten times
# its numeric uncertainty: beyond what `numerics.verdict` leaves undecided.
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
    unneeded = frozenset(check.name for check in CHECKS if check.can_be_off) - _NEEDED
    plain = replace(case, second_order=(), records_fingerprint=False, checks_off=case.checks_off | unneeded)
    first = caching.open(Opening(samples[0]))
    labels = [label_of(first, pair) for pair in pair_keys(first)] if case.second_order else []
    subject = _Subject(replace(plain, second_order=case.second_order), caching, samples, 1)
    findings = subject.findings
    mutants = list(subject.mutants(corruptions))
    if case.second_order and findings.first is not None:
        try:
            vjp = caching.vjp(first)
            second = _Subject(
                replace(vjp.case, records_fingerprint=False, checks_off=plain.checks_off),
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
        formula = self.opener.in_dtype(op, "float64") or op
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
        rule = rule_for(self.case.pairs, label)
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
        points = [self.opener.open(Opening(sample)).facts.sites(tuple(labels)) for sample in self.samples]
        for site in unseen_sites(points):
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
        opener = _CorruptingOpener(self.opener, replace(wrong, input_indices=input_indices))
        corruption = wrong.name
        try:
            corrupted_findings = examine(self.case, cast("Opener[Any]", opener), samples, below=self.below)
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


@dataclass
class _CorruptingOpener:
    """Opens a case's ops with gradients that are wrong in one way."""

    inner: CachingOpener
    corruption: Corruption

    @property
    def case(self) -> Case:
        return self.inner.case

    def open(self, opening: Opening) -> Any:  # noqa: ANN401 (an op, never None)
        return self._corrupt(self.inner.open(opening))

    def in_dtype(self, op: Any, dtype: Dtype) -> Any:  # noqa: ANN401 (an op, corrupted or not)
        return self._corrupt(self.inner.in_dtype(self.inner.open(op.opening), dtype))

    def written_ops(self, *_: object) -> None:
        """Return nothing: the gradient is wrong, whoever wrote it."""

    def gradients_seen(self, op: Operation) -> Mapping[str, int]:
        del op  # they were seen before the gradient was corrupted
        return {}

    def unrun_gradients(self) -> Sequence[str]:
        """Return nothing: it is known from the gradient that isn't corrupted."""
        return ()

    def _corrupt(self, op: Any) -> Any:  # noqa: ANN401 (an op, corrupted or not)
        # Nothing looks at the gradient of a reference, or at the one in complex128.
        is_plain = op is None or op.opening.is_reference or op.opening.dtype == "complex128"
        return op if is_plain else self.corruption.corrupt(op)
