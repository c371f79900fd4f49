"""Judges pairs by random probes, down to single elements, where Jacobians are too large or cost too much."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.judging.probe_group import Group
from gradcheck_cli.checking.judging.probe_search import PROBES, Search
from gradcheck_cli.checking.judging.single_element import Element, judge_element
from gradcheck_cli.checking.ops.jacobian import working_dtype
from gradcheck_cli.checking.ops.packing import packed_size
from gradcheck_cli.checking.pairs.pair_sample import PairSample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradcheck_cli.checking.ops.budget import Budget
    from gradcheck_cli.checking.pairs.pair import Pair, PairKey
    from gradcheck_cli.numerics import ToleranceRule


def probe_pairs(pairs: Mapping[PairKey, Pair], sample: int, budget: Budget) -> dict[PairKey, PairSample]:
    """Judge pairs by random probes: all inputs of some outputs move at once, and so do their gradients.

    If the probes show too little about some pairs, or find an error in one, the other pairs are probed again
    in smaller groups, as long as there is time.

    Args:
        pairs: the pairs, whose formula has the vjp.
        sample: index of the sample point.
        budget: limits the time after the first probe of each group, and after two probes of all pairs. The
            second of these holds the kinks that the first one met.
    """
    found: dict[PairKey, PairSample] = {}
    for group in _groups(pairs):
        waiting = [group]
        while waiting:
            search = _searched(waiting.pop(0), sample, budget, 1 if found else PROBES)
            # Those alone are probed again whatever it takes, once: the others drown them.
            smaller = _blind(search)[:1] if budget.is_spent else _smaller(search, found)
            again = {pair for one in smaller for pair in one.pairs}
            for pair in search.group.pairs:
                if pair not in again and (pair not in found or pair == search.wrong):
                    found[pair] = _sample_of(search, pair)
            waiting += smaller
    return found


def _groups(pairs: Mapping[PairKey, Pair]) -> list[Group]:
    """Group outputs with the same inputs, each group with all of these inputs: nothing else may move."""
    by_output: dict[tuple[int, ToleranceRule], list[int]] = defaultdict(list)
    for (output, number), pair in pairs.items():
        by_output[output, pair.tolerance].append(number)
    together: dict[tuple[tuple[int, ...], ToleranceRule], list[int]] = defaultdict(list)
    for (output, rule), numbers in by_output.items():
        together[tuple(numbers), rule].append(output)
    return [Group(pairs, tuple(outputs), numbers) for (numbers, _), outputs in together.items()]


def _searched(group: Group, sample: int, budget: Budget, least: int) -> Search:
    seeds = [group.case.seed, sample, *group.outputs, *group.inputs]
    search = Search(group, group.target(), budget, np.random.default_rng(seeds), least=least)
    search.run()
    return search


def _smaller(search: Search, found: dict[PairKey, PairSample]) -> list[Group]:
    """Return the groups to probe again because a search showed too little; keep what it settled."""
    group = search.group
    if len(group.pairs) == 1:
        return []
    if search.wrong is not None:
        output, number = search.wrong
        others = [one for one in group.outputs if one != output]
        rest = [one for one in group.inputs if one != number]
        smaller = [group.of(others, [number])] if others else []
        return [*smaller, group.of(group.outputs, rest)] if rest else smaller
    weak = group.pairs if search.doubt else search.weak
    for pair in group.pairs:
        if pair not in weak:
            found[pair] = _sample_of(search, pair)
    inputs = list(dict.fromkeys(number for _, number in weak))
    outputs = list(dict.fromkeys(output for output, _ in weak))
    if not weak:
        return []
    if search.doubt:
        return _cut(group, outputs, inputs)
    return _blind(search) or _cut(group, outputs, inputs)


def _blind(search: Search) -> list[Group]:
    """Return the weak inputs of which nothing is seen, then the other weak ones; nothing if all are alike.

    Gradients that are zero but for rounding (of a bias before a batch normalisation) show as such only among
    their like.
    """
    if search.is_over or not search.weak:
        return []
    outputs = list(dict.fromkeys(output for output, _ in search.weak))
    inputs = list(dict.fromkeys(number for _, number in search.weak))
    blind = [number for number in inputs if all(search.all_missed((one, number)) >= 1 for one in outputs)]
    rest = [number for number in inputs if number not in blind]
    if not blind or len(blind) == len(search.group.inputs):
        return []
    return [search.group.of(outputs, blind), *([search.group.of(outputs, rest)] if rest else [])]


def _cut(group: Group, outputs: list[int], inputs: list[int]) -> list[Group]:
    """Return the requested part of a group, or its halves if that is the whole group."""
    if len(inputs) < len(group.inputs) or len(outputs) < len(group.outputs):
        return [group.of(outputs, inputs)]
    if len(inputs) > 1:
        half = len(inputs) // 2
        return [group.of(outputs, inputs[:half]), group.of(outputs, inputs[half:])]
    half = len(outputs) // 2
    return [group.of(outputs[:half], inputs), group.of(outputs[half:], inputs)]


def _sample_of(search: Search, pair: PairKey) -> PairSample:
    """Return what a search says about one pair."""
    group, (output, number) = search.group, pair
    op = group.operations.differenced
    is_wrong = search.wrong == pair
    doubt, is_weak = search.doubt, False
    if search.wrong is not None and not is_wrong:
        doubt = (
            f"the budget of {group.case.budget:g} s was spent on an error of another pair that it is probed "
            "together with: nothing is known about this one; give it more time (--budget)."
        )
    elif not is_wrong and not doubt and pair in search.weak:
        doubt, is_weak = search.too_weak(pair), True
    return _with_elements(
        [element for of, element in search.elements if of == pair],
        PairSample(
            **_NONE,
            is_connected=group.operations.formula.is_connected(output, number),
            evaluations=search.target.evaluations,
            method="probe",
            numeric_dtype=working_dtype(op, op.inputs[number].dtype),
            shape=(packed_size(op.outputs[output]), packed_size(op.inputs[number])),
            miss_probability=None if is_wrong else search.all_missed(pair),
            miss_size=None if is_wrong else group.case.power.size,
            is_zero=(search.gradient_is_zero, search.change_is_zero),
            is_faint=search.is_faint,
            probe_error=search.error,
            probe_bound=search.bound,
            doubt=doubt,
            is_weak=is_weak,
            approximate=max([_off(element) for of, element in search.elements if of == pair], default=0.0),
        ),
    )


def _off(element: Element) -> float:
    """Return the relative error of an element that is right only as an approximation."""
    if not element.is_approximate:
        return 0.0
    size = max(abs(element.analytic), abs(element.numeric))
    return abs(element.analytic - element.numeric) / size if size else 0.0


def with_element(group: Group, place: tuple[int, int], found: PairSample, budget: Budget) -> PairSample:
    """Judge one more element of a probed pair, and return it in place of the others.

    Args:
        group: of that pair.
        place: the element's row and column.
        found: what is known about the pair.
        budget: limits the time.

    Raises:
        OverBudgetError: it takes longer.
    """
    op = group.operations.differenced
    return replace(
        _with_elements([judge_element(group, place, budget)], found),
        numeric_dtype=working_dtype(op, op.inputs[group.inputs[0]].dtype),
        miss_probability=None,
        miss_size=None,
    )


# No element was judged on its own.
_NONE: dict[str, Any] = {
    **dict.fromkeys(("analytic", "numeric", "uncertainty", "allowed"), np.zeros((0, 1))),
    **dict.fromkeys(("verdict", "reason"), np.zeros((0, 1), np.int8)),
}


def _with_elements(found: list[Element], sample: PairSample) -> PairSample:
    def column(values: list[Any], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        return np.array(values, dtype=dtype).reshape(-1, 1)

    return replace(
        sample,
        analytic=column([element.analytic for element in found]),
        numeric=column([element.numeric for element in found]),
        uncertainty=column([element.uncertainty for element in found]),
        allowed=column([element.allowed for element in found]),
        verdict=column([element.verdict for element in found], np.int8),
        reason=column([element.reason for element in found], np.int8),
        rows=column([element.row for element in found], np.int64),
        columns=column([element.column for element in found], np.int64),
    )


def refuse(pair: Pair) -> PairSample:
    """Return the result of a pair that only probes could judge, where probes are refused."""
    op, (output, number) = pair.operations.differenced, pair.key
    shape = (packed_size(op.outputs[output]), packed_size(op.inputs[number]))
    return PairSample(
        **_NONE,
        is_connected=pair.operations.formula.is_connected(output, number),
        evaluations=0,
        method="none",
        numeric_dtype=working_dtype(op, op.inputs[number].dtype),
        shape=shape,
        is_zero=(False, False),
        doubt=(
            f"a Jacobian of {shape[0]} x {shape[1]} elements is left to random probes, which '--require "
            "full' refuses; use 'method: full', or a smaller input."
        ),
    )
