"""`--point`: a case at the first sample point with some values replaced, and the command that leads there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gradcheck_cli.errors import UsageError
from gradcheck_cli.running.run_loop import reproduce
from gradcheck_cli.spec.case import Origin
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.spec.values.draw_values import draw
from gradcheck_cli.spec.values.points import at_point

INPUTS = {"x": {"shape": [3]}, "m": {"shape": [2, 2]}, "z": {"shape": [], "dtype": "complex128"}}


def case():
    (loaded,) = load_mapping({"op": "op", "forward": "a:b", "inputs": INPUTS})
    return loaded


def values(text):
    given = at_point(case(), text)
    assert not given.is_generated
    return [draw(given, tensor, 0) for tensor in given.tensors]


def test_elements_and_whole_inputs_are_replaced():
    drawn = [draw(case(), tensor, 0) for tensor in case().tensors]
    x, m, z = values("x[2]=37.2; m[0,1] = -1e-3; z=1+2j")
    assert (x[2], m[0, 1], z) == (37.2, -1e-3, 1 + 2j)
    np.testing.assert_array_equal(x[:2], drawn[0][:2])
    np.testing.assert_array_equal(values("x=[1, 2, 3]")[0], [1, 2, 3])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y=1", "--point: must be INPUT=VALUE or INPUT[INDEX]=VALUE, but got 'y=1'. Inputs: x, m, z"),
        ("x", "--point: must be INPUT=VALUE or INPUT[INDEX]=VALUE, but got 'x'."),
        ("x[9]=1", "--point: 'x[9]=1' doesn't fit x, of shape [3]: "),
        ("x=[1, 2]", "--point: 'x=[1, 2]' doesn't fit x, of shape [3]: "),
    ],
)
def test_what_does_not_fit_is_said(text, message):
    with pytest.raises(UsageError) as raised:
        at_point(case(), text)
    assert str(raised.value).startswith(message)


def test_the_command_that_repeats_it_has_the_point():
    (loaded,) = load_mapping({"op": "op", "forward": "a:b", "inputs": INPUTS})
    assert "--point" not in reproduce(loaded)
    written = replace(loaded, origin=Origin("a.yaml"))
    assert reproduce(at_point(written, "x[2]=1")).endswith(" --point 'x[2]=1'")
