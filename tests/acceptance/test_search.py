"""`gradcheck search` as a whole command: what it finds, shrinks and says."""

import json
import shlex
import sys

import pytest

from gradcheck_cli.cli.main import run_command

FUNCTIONS = """
import tensorflow as tf

def make(factor):
    @tf.custom_gradient
    def function(x):
        large = tf.reduce_sum(tf.where(tf.equal(x, x), x, 0.0 * x)) > 40.0
        return x * x, lambda dy: dy * x * tf.where(large, tf.cast(factor, x.dtype), tf.cast(2.0, x.dtype))
    return function

@tf.custom_gradient
def root(x):
    return tf.sqrt(x * x + 1e-30), lambda dy: dy * x / tf.sqrt(x * x)
"""
SPEC = """\
op: {op}
forward: {module}:{target}
{build}inputs:
  x: {{shape: [4]}}  # as they come
"""


@pytest.fixture
def spec(tmp_path):
    module = f"searched_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(FUNCTIONS)

    def write(target="make", factor=3.0):
        build = f"build: {{factor: {factor}}}\n" if target == "make" else ""
        file = tmp_path / "op.yaml"
        file.write_text(SPEC.format(op=target, module=module, target=target, build=build))
        return file

    yield write
    sys.modules.pop(module, None)


def search(file, *options, seconds=3):
    return run_command(["search", str(file), "--seconds", str(seconds), "-j", "0", *options])


def test_the_line_below_what_is_found_repeats_it(spec, capsys):
    assert search(spec()) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "check it there: gradcheck " in line]
    assert run_command([*shlex.split(line)[4:], "-j", "0"]) == 1


def test_a_gradient_that_is_nan_where_all_else_is_finite(spec, capsys):
    assert search(spec("root"), "--format", "json") == 1
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    (pair,) = case["pairs"]
    assert pair["mismatch"] == "nonfinite"
    assert case["search"]["found"] is not None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("{shape: [4]}", "{value: [1.0, 2.0]}"), "all values of its inputs are written out"),
        (("inputs:", "modes: [eager]\ninputs:"), "its mode is eager"),
    ],
)
def test_what_can_not_be_searched_says_why(spec, capsys, change, reason):
    file = spec(factor=2.0)
    file.write_text(file.read_text().replace(*change))
    assert search(file, seconds=1) == 0
    assert f"this case isn't searched: {reason}" in " ".join(capsys.readouterr().out.split()).replace(
        "points are looked at in graphs, and ", ""
    )
