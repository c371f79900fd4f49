"""Blame in print."""

from types import SimpleNamespace

import pytest

from gradcheck_cli.checking.ops.operation import OpPlace
from gradcheck_cli.features.blame.blame_text import MAX_OTHERS, blame_lines
from gradcheck_cli.features.blame.path_blame import Blame, OpVerdict
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import Status
from gradcheck_cli.spec.case import Case, Origin

CASE = Case("chain", "default", "float64", (), origin=Origin("specs/chain.yaml", line=2))
WRONG = OpVerdict(
    OpPlace("chain/op31", "Exp", "bad_exp_grad", "file.py", 12),
    Status.MISMATCHED,
    evidence="at out[0] / in[0] it is 1.01, differences give 1",
    contributes=True,
)
RIGHT = OpVerdict(OpPlace("chain/op30", "Sin", "_SinGrad", "math_grad.py", 1), Status.PASSED)
UNSURE = OpVerdict(OpPlace("while", "While"), Status.INCONCLUSIVE, "a stop_gradient inside it can't be held")


def of(*ops, agrees=False, reason="", sample=0):
    blame = Blame(ops, agrees, reason)
    return SimpleNamespace(output="y", inputs=("x",), sample=sample, blame=blame)


def text(found, width=80):
    return layout.plain(blame_lines(CASE, [found], width=width))


def test_the_op_is_named_with_its_type_gradient_function_file_and_line():
    assert text(of(WRONG, RIGHT)) == (
        "specs/chain.yaml · chain · float64 · dy/dx\n"
        "  blame: op 'chain/op31' (Exp), gradient bad_exp_grad at file.py:12 is the first\n"
        "    whose own gradient is wrong: at out[0] / in[0] it is 1.01, differences give\n"
        "    1\n"
        "  2 ops on the way: 1 right, 1 wrong, 0 undecided\n"
    )


def test_the_others_in_doubt_come_after_it():
    shown = text(of(WRONG, WRONG, UNSURE, sample=1))
    assert "    wrong too: op 'chain/op31' (Exp), gradient bad_exp_grad at file.py:12: at\n" in shown
    assert "    undecided too: op 'while' (While) without a gradient function: a\n" in shown
    assert shown.endswith("  3 ops on the way: 0 right, 2 wrong, 1 undecided at sample point 1\n")


def test_many_others_are_counted():
    shown = text(of(*[WRONG] * (MAX_OTHERS + 4)))
    assert shown.count("wrong too:") == MAX_OTHERS
    assert "    and 3 more; --format json has all\n" in shown


@pytest.mark.parametrize(
    ("found", "wording"),
    [
        (of(RIGHT, agrees=True), "blame: every op's own gradient is right on this path (1 op)"),
        (of(RIGHT, UNSURE, agrees=True), "blame: the whole gradient agrees, and so does"),
        (of(agrees=None, reason="it jumps"), "blame: no op can be blamed: it jumps"),
        (of(RIGHT), "blame: the gradient is wrong, but each of its 1 ops' own gradient is right"),
    ],
)
def test_where_none_is_named_it_says_why(found, wording):
    assert wording in text(found, 200)
