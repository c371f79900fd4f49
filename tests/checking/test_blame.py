"""Blame over paths of NumPy functions: the op that is named, and what is said where none can be."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from gradcheck_cli.checking.judging.op_alone import check_alone
from gradcheck_cli.checking.ops.operation import Opening, OpOnPath, OpPlace
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.blame import path_blame as blaming
from gradcheck_cli.features.blame.path_blame import find_blame, sentence
from gradcheck_cli.numerics import FLOAT64
from gradcheck_cli.results import Status
from tests.support.numpy_op import Numpy

START = np.array([0.4, -0.8, 1.3])


@dataclass
class Link:
    """One elementwise op of a chain: a function, and what its gradient multiplies the upstream by."""

    function: object
    slope: object
    name: str = "link"
    obstacle: str = ""
    fault: str = ""
    closes_over: bool = False
    alone: object = None  # what it is alone, where that is another function


def sine(**changes):
    return Link(np.sin, np.cos, **{"name": "sin", **changes})


def exponential(factor=1.0, **changes):
    return Link(np.exp, lambda x: factor * np.exp(x), **{"name": "exp", **changes})


@dataclass
class Chain:
    """A path over links in forward order; blame sees them backward."""

    links: list
    start: np.ndarray = field(default_factory=lambda: START)
    slope: object = None  # of the whole, in place of what the links' gradients make
    precision: object = FLOAT64
    rtol: object = None
    asked: list = field(default_factory=list)

    @property
    def ops(self):
        return [
            OpOnPath(OpPlace(f"{link.name}_{number}", "Op", "grad", "ops.py", 1), link.obstacle, link.fault)
            for number, link in reversed(list(enumerate(self.links)))
        ]

    def _link(self, number):
        return len(self.links) - 1 - number

    def values(self, start):
        values = [start]
        for link in self.links:
            values.append(link.function(values[-1]))
        return values

    def probe(self, generator):
        return Probe(self, generator.normal(size=3), generator.normal(size=3))

    def isolate(self, number):
        self.asked.append(number)
        place = self._link(number)
        link = self.links[place]
        if link.alone is not None and isinstance(link.alone, Exception):
            raise link.alone
        function, slope = link.alone or (link.function, link.slope)
        point = {"x": self.values(self.start)[place]}
        return Numpy(function, lambda u, x: slope(x) * u, point).open(Opening())

    def closes_over(self, number):
        return self.links[self._link(number)].closes_over


class Probe:
    room = (-np.inf, np.inf)

    def __init__(self, chain, upstream, direction):
        self.chain, self.direction = chain, direction
        values = chain.values(chain.start)
        flows = [upstream]
        for link, value in zip(reversed(chain.links), reversed(values[:-1]), strict=True):
            flows.append(link.slope(value) * flows[-1])
        self.flows = flows  # flows[k] flows into the k-th op backward, flows[k + 1] comes out of it
        self.slope = float(flows[-1] @ direction)
        self.is_finite = [
            (bool(np.isfinite(flows[k]).all()), bool(np.isfinite(flows[k + 1]).all()))
            for k in range(len(chain.links))
        ]

    def contributions(self, steps):
        rows = []
        for step in steps:
            values = self.chain.values(self.chain.start + step * self.direction)
            row = [self.flows[0] @ values[-1]]
            for k in range(len(self.chain.links)):
                row += [self.flows[k] @ values[-1 - k], self.flows[k + 1] @ values[-2 - k]]
            rows.append(row)
        return np.array(rows)

    def sizes(self, step):
        moved = self.chain.values(self.chain.start + step * self.direction)
        back = self.chain.values(self.chain.start - step * self.direction)
        spans = [np.abs(one - other) / (2 * step) for one, other in zip(moved, back, strict=True)]
        return np.array(
            [
                np.abs(self.flows[k]) @ spans[-1 - k] + np.abs(self.flows[k + 1]) @ spans[-2 - k]
                for k in range(len(self.chain.links))
            ]
        )


def test_a_right_chain_needs_no_op_alone():
    chain = Chain([sine(), exponential(), sine()])
    blame = find_blame(chain)
    assert (blame.status, blame.agrees, chain.asked) == (Status.PASSED, True, [])
    assert sentence(blame) == "every op's own gradient is right on this path (3 ops)"


@pytest.mark.parametrize("place", [0, 7, 19])
@pytest.mark.parametrize("factor", [1.001, -1.0, 0.0])
def test_the_wrong_one_of_twenty_is_named_and_it_alone_is_looked_at(place, factor):
    links = [sine() for _ in range(20)]
    links[place] = exponential(factor)
    chain = Chain(links)
    blame = find_blame(chain)
    assert [op.place.name for op in blame.named] == [f"exp_{place}"]
    assert (blame.status, blame.agrees) == (Status.MISMATCHED, False)
    if factor:  # else nothing flows on from it, and who is given nothing is looked at alone as well
        assert chain.asked == [19 - place]
    assert sentence(blame).startswith(
        f"op 'exp_{place}' (Op), gradient grad at ops.py:1 is the first whose own"
    )


def test_two_that_make_up_for_each_other_are_both_named():
    blame = find_blame(Chain([exponential(2.0), sine(), exponential(0.5)]))
    assert [op.place.name for op in blame.named] == ["exp_2", "exp_0"]
    assert blame.agrees is True
    assert blame.status is Status.MISMATCHED
    assert sentence(blame).endswith("1 other is wrong too")


def test_one_through_which_nothing_flows_is_suspected_but_not_named():
    dead = Link(lambda x: 0.0 * x, lambda x: 0.0 * x, name="dead")
    chain = Chain([exponential(1.5), dead])
    blame = find_blame(chain)
    assert (blame.named, blame.status) == ((), Status.INCONCLUSIVE)
    (suspect,) = blame.undecided
    assert (suspect.place.name, suspect.is_suspect, suspect.contributes) == ("exp_0", True, False)
    assert "wrong when its inputs move freely, but nothing flows through it" in suspect.reason


def test_an_op_that_can_not_be_looked_at_is_said_to_be_so():
    listed = exponential(1.3, obstacle="it passes on a list of tensors, not numbers")
    blame = find_blame(Chain([sine(), listed]))
    assert blame.status is Status.INCONCLUSIVE
    assert sentence(blame) == (
        "the gradient is wrong, and no op that could be checked is to blame; undecided: "
        "'exp_1' (Op): it passes on a list of tensors, not numbers"
    )


def test_one_that_adds_to_the_error_but_fails_alone_is_told_apart():
    blame = find_blame(Chain([sine(), exponential(1.3, alone=CaseFailedError("gradient", "it raised"))]))
    assert (blame.named, blame.status) == ((), Status.INCONCLUSIVE)
    assert "op 'exp_1' (Op), gradient grad at ops.py:1 adds to the error" in sentence(blame)
    assert sentence(blame).endswith("it raised")


def test_a_forward_that_closes_over_a_tensor_is_named_though_it_is_right_alone():
    closing = Link(lambda x: x * x, lambda x: x, name="closing", closes_over=True, alone=(np.sin, np.cos))
    blame = find_blame(Chain([sine(), closing]))
    (named,) = blame.named
    assert "closes over a tensor" in named.evidence


def test_a_gradient_of_wrong_form_is_named_for_it():
    blame = find_blame(Chain([sine(fault="its gradient must have shape [3]")]))
    assert blame.named[0].evidence == "its gradient must have shape [3]"


@pytest.mark.parametrize("is_wrong", [True, False])
def test_few_digits_are_looked_at_again_where_nothing_else_explains_the_error(monkeypatch, is_wrong):
    def look(path, probe, seen, whole):
        for one in seen:
            one.is_tested, one.is_rough = True, True
        whole.is_wrong = is_wrong

    monkeypatch.setattr(blaming, "_evaluate_probe", look)
    chain = Chain([sine(), exponential(1.1)])
    blame = find_blame(chain)
    assert blame.named == ()
    if not is_wrong:
        assert (chain.asked, blame.status) == ([], Status.PASSED)
        return
    assert chain.asked == [0, 1]
    (suspect,) = blame.undecided
    assert (suspect.place.name, suspect.is_suspect) == ("exp_1", True)
    assert suspect.reason.endswith("but differences along this path show too few digits of it")


def test_a_stated_tolerance_is_each_ops_as_well():
    slight = exponential(1 + 1e-7)
    assert find_blame(Chain([sine(), slight])).status is Status.PASSED
    assert [op.place.name for op in find_blame(Chain([sine(), slight], rtol=1e-9)).named] == ["exp_1"]


WRONG = {
    "none": (lambda u, x: None, "its gradient for x is None, but y moves with it"),
    "nan": (lambda u, x: np.nan * x * u, "it is nan, differences give"),
    "ignoring": (lambda u, x: np.cos(x), "differences give"),
    "squaring": (lambda u, x: np.cos(x) * u**2, "isn't linear in the upstream"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_said_of_an_op_alone(name):
    gradient, wording = WRONG[name]
    found = check_alone(Numpy(np.sin, gradient, {"x": START}).open(Opening()))
    assert (found.status, found.reason) == (Status.MISMATCHED, "")
    assert wording in found.evidence


def test_an_op_that_draws_can_not_be_told():
    op = Numpy(np.sin, lambda u, x: np.cos(x) * u, {"x": START}, facts={"random_types": ("RandomUniform",)})
    found = check_alone(op.open(Opening()))
    assert (found.status, found.reason) == (Status.INCONCLUSIVE, "it draws anew at each call (RandomUniform)")
