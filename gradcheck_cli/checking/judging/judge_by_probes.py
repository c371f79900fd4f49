"""Judges pairs by random probes, down to single elements, where Jacobians are too large or cost too much."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gradcheck_cli.checking.judging.probe_group import Group
from gradcheck_cli.checking.judging.probe_search import Search, judge_element
from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.checking.ops.jacobian import PairKey, working_dtype
from gradcheck_cli.checking.ops.operation import Float, packed_size
from gradcheck_cli.checking.pairs.pair import Differencing, Pair, PairSample, Places, ProbeNumbers
from gradcheck_cli.checking.pairs.rounding import mark_remainders
from gradcheck_cli.numerics import ToleranceRule
from gradcheck_cli.numerics.shared_limits import DIRECTIONS


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
    samples: dict[PairKey, PairSample] = {}
    with budget.pause():
        groups = _group_pairs(pairs)
    for group in groups:
        waiting = [group]
        while waiting:
            search = _search(waiting.pop(0), sample, budget, 1 if samples else DIRECTIONS)
            # Inputs of which nothing is seen are probed once more in any case: the others drowned them.
            smaller = _separate_blind(search)[:1] if budget.is_spent else _split(search, samples)
            again = {pair for subgroup in smaller for pair in subgroup.pairs}
            for pair in search.group.pairs:
                if pair not in again and (pair not in samples or pair == search.wrong):
                    samples[pair] = _sample_of(search, pair)
            waiting += smaller
    return mark_remainders(pairs, samples)


def _group_pairs(pairs: Mapping[PairKey, Pair]) -> list[Group]:
    """Group outputs with the same inputs, each group with all of these inputs: nothing else may move.

    Pairs with a `stop_gradient` in between, which may change their derivatives, come last and by themselves.
    """
    by_output: dict[tuple[bool, int, ToleranceRule], list[int]] = defaultdict(list)
    for (output, input_index), pair in pairs.items():
        by_output[_may_be_stopped(pair), output, pair.tolerance].append(input_index)
    together: dict[tuple[bool, tuple[int, ...], ToleranceRule], list[int]] = defaultdict(list)
    for (may_be_stopped, output, rule), input_indices in by_output.items():
        together[may_be_stopped, tuple(input_indices), rule].append(output)
    groups = sorted(together.items(), key=lambda item: item[0][0])
    kept_rows: dict[tuple[int, int], dict[int, Float | None]] = {}
    return [
        Group(pairs, tuple(outputs), input_indices, kept_rows) for (_, input_indices, _), outputs in groups
    ]


def _may_be_stopped(pair: Pair) -> bool:
    """Whether a derivative may depend on a `stop_gradient` of which the spec doesn't say that it is meant."""
    facts = pair.operations.differenced.facts
    return pair.case.judging.freeze is None and bool(facts.stops_between(*pair.key))


def _search(group: Group, sample: int, budget: Budget, least: int) -> Search:
    seeds = [group.case.seed, abs(sample), *group.outputs, *group.inputs]
    search = Search(group, group.target(), budget, np.random.default_rng(seeds), least=least)
    search.run()
    return search


def _split(search: Search, samples: dict[PairKey, PairSample]) -> list[Group]:
    """Return the groups to probe again because a search showed too little; keep what it settled."""
    group = search.group
    if len(group.pairs) == 1:
        return []
    if search.wrong is not None:
        output, input_index = search.wrong
        others = [index for index in group.outputs if index != output]
        rest = [index for index in group.inputs if index != input_index]
        groups = [group.restrict_to(others, [input_index])] if others else []
        return [*groups, group.restrict_to(group.outputs, rest)] if rest else groups
    weak = group.pairs if search.doubt else search.weak
    for pair in group.pairs:
        if pair not in weak:
            samples[pair] = _sample_of(search, pair)
    if not weak:
        return []
    outputs, inputs = _sides(weak)
    if search.doubt:
        return _cut(group, outputs, inputs)
    return _separate_blind(search) or _cut(group, outputs, inputs)


def _separate_blind(search: Search) -> list[Group]:
    """Return the weak inputs of which nothing is seen, then the other weak ones; nothing if all are alike.

    Gradients that are zero but for rounding (of a bias before a batch normalisation) are recognised only if
    no others are probed with them.
    """
    if search.is_over or not search.weak:
        return []
    outputs, inputs = _sides(search.weak)
    blind = [
        input_index
        for input_index in inputs
        if all(search.missed_share((output, input_index)) >= 1 for output in outputs)
    ]
    rest = [input_index for input_index in inputs if input_index not in blind]
    if not blind or len(blind) == len(search.group.inputs):
        return []
    return [
        search.group.restrict_to(outputs, blind),
        *([search.group.restrict_to(outputs, rest)] if rest else []),
    ]


def _sides(pairs: Iterable[PairKey]) -> Iterator[list[int]]:
    """Yield the outputs of some pairs, then their inputs."""
    return (list(dict.fromkeys(side)) for side in zip(*pairs, strict=True))


def _cut(group: Group, outputs: list[int], inputs: list[int]) -> list[Group]:
    """Return the requested part of a group, or its halves if that is the whole group."""
    if len(inputs) < len(group.inputs) or len(outputs) < len(group.outputs):
        return [group.restrict_to(outputs, inputs)]
    if len(inputs) > 1:
        half = len(inputs) // 2
        return [group.restrict_to(outputs, inputs[:half]), group.restrict_to(outputs, inputs[half:])]
    half = len(outputs) // 2
    return [group.restrict_to(outputs[:half], inputs), group.restrict_to(outputs[half:], inputs)]


def _sample_of(search: Search, pair: PairKey) -> PairSample:
    """Return what a search says about one pair."""
    group, is_wrong = search.group, search.wrong == pair
    doubt, is_weak = search.doubt, False
    if search.wrong is not None and not is_wrong:
        doubt = (
            f"the budget of {group.case.judging.budget:g} s was spent on an error of another pair that it is "
            "probed together with: nothing is known about this one; give it more time (--budget)."
        )
    elif not is_wrong and not doubt and search.is_weak(pair):
        doubt, is_weak = search.explain_weakness(pair), True
    elements = [element for element_pair, element in search.elements if element_pair == pair]
    numbers = replace(
        search.numbers,
        miss_probability=None if is_wrong else search.missed_share(pair),
        miss_size=None if is_wrong else group.case.judging.power.size,
        is_weak=is_weak,
    )
    sample = _without_elements(group.members[pair], numbers, doubt)
    sample = sample.with_differencing(method="probe", evaluations=search.target.evaluations)
    return _put_elements(elements, sample)


def _without_elements(pair: Pair, probes: ProbeNumbers, doubt: str) -> PairSample:
    """Return what is said of a probed pair, of which no element was judged alone."""
    op, (output, input_index) = pair.operations.differenced, pair.key
    return PairSample(
        **_NONE,
        is_connected=pair.operations.formula.facts.is_connected(output, input_index),
        differencing=Differencing(dtype=working_dtype(op, op.inputs[input_index].dtype)),
        places=Places((packed_size(op.outputs[output]), packed_size(op.inputs[input_index]))),
        probes=probes,
        doubt=doubt,
    )


def judge_one_element(
    group: Group, position: tuple[int, int], sample: PairSample, budget: Budget
) -> PairSample:
    """Judge one more element of a probed pair, and return it in place of the others.

    Args:
        group: of that pair.
        position: the element's row and column.
        sample: what is known about the pair.
        budget: limits the time.

    Raises:
        OverBudgetError: it takes longer.
    """
    op = group.operations.differenced
    return replace(
        _put_elements([judge_element(group, position, budget)], sample),
        differencing=replace(sample.differencing, dtype=working_dtype(op, op.inputs[group.inputs[0]].dtype)),
        probes=replace(sample.probes or ProbeNumbers(), miss_probability=None, miss_size=None),
    )


# No element was judged on its own.
_NONE: dict[str, Any] = {
    **dict.fromkeys(("analytic", "numeric", "uncertainty", "allowed"), np.zeros((0, 1))),
    **dict.fromkeys(("verdict", "reason"), np.zeros((0, 1), np.int8)),
}


def _put_elements(elements: list[PairSample], sample: PairSample) -> PairSample:
    """Return what is known of a probed pair with the verdicts on these single elements."""
    if not elements:
        nowhere = np.zeros((0, 1), np.int64)
        return replace(sample, **_NONE, places=Places(sample.size, nowhere, nowhere))
    names = (*_NONE, "rules", "rows", "columns")
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(element, name) for element in elements]) for name in names
    }
    places = Places(sample.size, arrays.pop("rows"), arrays.pop("columns"))
    return replace(sample, **arrays, places=places)


def refuse(pair: Pair) -> PairSample:
    """Return the result of a pair that only probes could judge, where probes are refused."""
    rows, columns = packed_size(pair.output), packed_size(pair.input)
    doubt = (
        f"a Jacobian of {rows} x {columns} elements is left to random probes, which '--require full' "
        "refuses; use 'method: full', or a smaller input."
    )
    return _without_elements(pair, ProbeNumbers(), doubt)
