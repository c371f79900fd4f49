"""A backward pass in print: every number there, no line wider than the terminal, JSON for any reader."""

import json

import numpy as np
import pytest

from gradcheck_cli.checking.ops.operation import OpPass, OpPlace
from gradcheck_cli.features.blame.backward_pass import PassTrace, summarise_pass, summarise_tensor
from gradcheck_cli.features.blame.blame_text import trace_json, trace_lines
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.spec.case import Case, Origin

CASE = Case("chain", "default", "float64", (), origin=Origin("specs/chain.yaml", line=2))
AT_X = np.array(1024.0)
SQUARE = ("square.<locals>.<lambda>", "scalar_ops.py", 9)


def a_pass(*ops, inputs=("x",), gradients=(AT_X,), left_out=0):
    return PassTrace("y", inputs, summarise_pass(ops), tuple(map(summarise_tensor, gradients)), left_out)


def unit(name, upstream, gradient):
    return OpPass(
        OpPlace(name, "IdentityN", *SQUARE), ((0, np.asarray(upstream)),), ((0, np.asarray(gradient)),)
    )


CHAIN = a_pass(unit("c", 1.0, 32.0), unit("b", 32.0, 256.0), unit("a", 256.0, 1024.0))
LARGE = a_pass(
    OpPass(
        OpPlace("dense/MatMul", "MatMul", "_MatMulGrad", "tensorflow/python/ops/math_grad.py", 1696),
        ((0, np.linspace(-1.0, 2.0, 600).reshape(20, 30)),),
        ((0, np.full((20, 40), np.nan)), (1, None)),
    ),
    gradients=(np.full((20, 40), np.nan),),
    left_out=2,
)


def text(one, width=80, case=CASE):
    return layout.plain(trace_lines(case, [one], width=width))


def test_large_tensors_have_their_norm_and_range():
    assert text(LARGE) == (
        "specs/chain.yaml · chain · float64 · dy/dx\n"
        "  dense/MatMul (MatMul)\n"
        "    upstream in: [20, 30] norm 2.453e+01, -1.000e+00 to 2.000e+00\n"
        "    gradient out at input 0: [20, 40] norm nan, nan to nan, 800 NaN\n"
        "    gradient out at input 1: None\n"
        "    gradient function: _MatMulGrad at tensorflow/python/ops/math_grad.py:1696\n"
        "    ^ NaN and None first appear here\n"
        "  x gets [20, 40] norm nan, nan to nan, 800 NaN\n"
        "  left out: 2 Identity ops, which only pass their upstream on (--type Identity)\n"
    )


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("one", [CHAIN, LARGE], ids=["chain", "large"])
def test_no_line_is_wider_than_the_terminal(one, width):
    assert max(map(layout.cells, text(one, width).splitlines())) <= width


def test_names_of_the_users_move_no_cursor():
    ill = a_pass(unit("a\x1b[2J", 1.0, 2.0), gradients=(np.array(2.0),))
    assert "\x1b" not in text(ill)
    assert "\x1b" not in text(ill, 40)


def test_json_holds_what_is_not_finite_as_words_and_complex_numbers_as_pairs():
    ill = OpPass(OpPlace("a", "Op"), ((0, np.array([np.inf, -np.inf])),), ((0, np.array([np.nan, 1 + 2j])),))
    content = json.loads(trace_json(CASE, [a_pass(ill)]))
    assert (content["schema_version"], content["op"], content["spec"]) == (1, "chain", "specs/chain.yaml:2")
    (op,) = content["passes"][0]["ops"]
    assert op["gradient"] is None
    assert op["upstreams"][0]["value"]["values"] == ["inf", "-inf"]
    assert op["gradients"][0]["value"]["values"] == [["nan", 0.0], [1.0, 2.0]]
    assert sorted(op["first"]) == ["NaN", "infinity"]
