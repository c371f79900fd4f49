"""Specs in Python become what a file would hold."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gradcheck_cli.features.library.library import MODULE, plain_spec


def named(x):
    return x


def test_what_a_file_would_hold_is_left_as_it_is():
    spec = {"op": "a", "forward": "tensorflow:exp", "inputs": {"x": {"shape": [2]}}, "attrs": {"axis": [0]}}
    assert plain_spec(spec) == spec


def test_a_function_goes_by_its_name_where_it_has_one():
    assert plain_spec({"forward": named}) == {"op": "named", "forward": f"{__name__}:named"}


def test_a_function_without_a_name_is_put_where_it_is_found():
    found = plain_spec({"op": "it", "forward": lambda x: 2 * x, "gradient": {"numpy": lambda u, x: u * x}})
    module, _, name = found["forward"].partition(":")
    assert module == MODULE
    assert getattr(sys.modules[MODULE], name)(3) == 6
    assert found["gradient"]["numpy"].startswith(f"{MODULE}:")


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (np.array([1.5, 2.0]), {"value": [1.5, 2.0], "shape": [2], "dtype": "float64"}),
        (np.array([[1, 2]], np.int32), {"value": [[1, 2]], "shape": [1, 2], "dtype": "int32"}),
        (np.array([True]), {"value": [True], "shape": [1], "dtype": "bool"}),
        (np.array([1 - 2j]), {"value": ["1-2j"], "shape": [1], "dtype": "complex128"}),
        (np.float32(0.5), {"value": 0.5, "shape": [], "dtype": "float32"}),
    ],
)
def test_an_array_says_what_its_input_is(array, value):
    assert plain_spec({"inputs": {"x": array}}) == {"inputs": {"x": value}}


def test_an_array_elsewhere_is_a_list():
    found = plain_spec({"inputs": {"x": {"value": np.ones(2)}}, "attrs": {"axis": np.array([0, 1])}})
    assert found == {"inputs": {"x": {"value": [1.0, 1.0]}}, "attrs": {"axis": [0, 1]}}
