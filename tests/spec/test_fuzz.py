"""Whatever stands in a file, loading ends in cases or in a SpecError."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradcheck_cli.errors import SpecError
from gradcheck_cli.spec.load import load_cases

SPEC = """op: f
forward: m:f
inputs:
  x: {shape: [2, 3], dtype: float32, uniform: {low: -2, high: 2}, away_from: [0], domain: {low: -3}}
  v: [{shape: [2]}, {value: [1, 2]}]
outputs: [y]
pairs: {dy/dx: {expect: zero}}
dtypes: [float32, complex64]
cases:
  - &c {name: a, inputs: {x: {shape: [1]}}}
"""
PIECES = st.sampled_from(
    [
        *"{}[]:-,?|>&*!%#'\"\t\n\0",
        "---\n",
        "null",
        "~",
        ".nan",
        "-.inf",
        "1e999",
        "9" * 500,
        "true",
        "<<: ",
        "*c",
        "!!set ",
        "[" * 70,
        "value: ",
        "spd: true",
        "\n  ",
        "0x",
        "\ud7ff",
        "\x85",
        "\u2028",
        "file: a.npy",
    ]
)
EDITS = st.lists(st.tuples(st.integers(0, len(SPEC)), st.integers(0, 12), PIECES), min_size=1, max_size=4)
QUICK = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def load_bytes(tmp_path):
    path = tmp_path / "a.yaml"

    def load(content):
        path.write_bytes(content)
        faults = ()
        try:
            load_cases([path])
        except SpecError as error:
            faults = error.faults
            assert faults
        assert all(fault.message and "\n" not in fault.message for fault in faults)

    return load


@QUICK
@given(content=st.binary(max_size=200))
def test_bytes(load_bytes, content):
    load_bytes(content)


@QUICK
@given(text=st.text(alphabet="ab: -{}[],&*!|>'\"\n\t#%?~0.1e", max_size=120))
def test_yaml_like_text(load_bytes, text):
    load_bytes(text.encode())


@QUICK
@given(edits=EDITS)
def test_mutated_specs(load_bytes, edits):
    text = SPEC
    for start, cut, piece in edits:
        text = text[:start] + piece + text[start + cut :]
    load_bytes(text.encode())
