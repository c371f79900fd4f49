"""`gradcheck mutate` by the command line: what specs would miss, exit codes, workers."""

import contextlib
import io
import json
from types import SimpleNamespace

import pytest

from gradcheck_cli.cli.main import run_command
from tests.support.processes import ROOT

SPEC = """
defaults: {inputs: {x: {shape: [3, 3]}}}
ops:
  - {op: sharp, op_type: Tanh}
  - {op: blunt, op_type: Tanh, tolerance: {rtol: 0.1}, tags: [blunt]}
  - {op: raises, forward: "missing_module:f", tags: [raises]}
  - {op: later, op_type: Tanh, tensorflow: ">=99"}
"""


@pytest.fixture
def mutate(tmp_path, monkeypatch):
    """Return a function that mutates the specs above in this process."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run_command(["mutate", "spec.yaml", "-j", "0", *arguments])
        return SimpleNamespace(code=code, out=out.getvalue(), err=err.getvalue())

    return call


def test_a_sharp_spec_misses_nothing(mutate):
    done = mutate("-k", "sharp", "--fail-under", "100")
    assert done.code == 0
    assert "1 case · 10 of 10 corruptions called a mismatch (100.0 %)" in done.out
    assert "missed (" not in done.out


def test_a_blunt_one_misses_what_its_tolerance_hides(mutate):
    done = mutate("--tag", "blunt")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0] == "spec.yaml · blunt · float64 · graph"
    assert lines[1].startswith("  dy/dx  factor: missed (off by ")
    assert "1 case · 8 of 10 corruptions called a mismatch (80.0 %), 2 missed" in done.out
    assert mutate("--tag", "blunt", "--fail-under", "99").code == 3
    assert mutate("--tag", "blunt", "--kind", "sign", "--fail-under", "99").code == 0


def test_what_can_not_be_tried_is_no_success(mutate):
    done = mutate("--tag", "raises", "--fail-under", "0")
    assert done.code == 3
    assert "not tried: import: " in done.out
    assert "1 case not tried" in done.out


def test_second_order_is_corrupted_too(tmp_path, mutate):
    text = "{op: s, op_type: Tanh, second_order: true, inputs: {x: {shape: [2]}}}"
    (tmp_path / "spec.yaml").write_text(text)
    done = mutate("--format", "json", "--kind", "factor")
    found = {one["pair"]: (one["order"], one["outcome"]) for one in json.loads(done.out)["mutants"]}
    assert found == {"dy/dx": (1, "caught"), "d2y/dx.dx": (2, "caught"), "d2y/dx.du": (2, "caught")}


# What hides a wrong gradient, by the corruption that is to be called out of sight, with words of why; and
# inputs that show it.
VECTOR, POSITIVE = "{x: {shape: [3]}}", "{x: {shape: [3], uniform: {low: 0.5, high: 2}}}"
SIGNED, FIXED = "{x: {shape: [3], value: [-1.0, 1.0, 2.0]}}", "move: false, reason: meant"
DENSE = "{x: {shape: [%d, 3]}, weights: {shape: [3, 2]}, bias: {shape: [2]}}"
MASKED, SCALED = "{x: {shape: [3]}, mask: {shape: [3], %s}}", "{x: {shape: [3]}, scale: {shape: [], %s}}"
IDS = "{x: {shape: [%d]}, ids: {value: %s, dtype: int32, %s}}"
RANGED, STATED = "{x: {shape: [%d], uniform: {low: %g, high: %g}}}", "{x: {shape: [3], value: %s}}"
IMAGES = "{x: {shape: [%d, 3, 3, 1]}, filters: {shape: [2, 2, 1, 2]}}"
CHOICE = "{mask: {shape: [3], dtype: bool, value: %s, move: false, reason: fixed}, x: {shape: [3]}}"
SIDE, ONES = "no element takes its side %r", "a factor of it is 1 throughout"
BATCH, TWICE = "the batch has size 1", "no index comes twice"
HIDDEN = {
    "mean for sum at a batch of 1": ("dense", DENSE % 1, DENSE % 4, "mean", BATCH),
    "relu6's upper limit": (
        "relu6", RANGED % (4, -2, 2), STATED % "[-1.0, 1.0, 7.0]", "branch", SIDE % "> 6"
    ),
    "a mask that is all ones": (
        "masked", MASKED % f"value: 1.0, {FIXED}", MASKED % "value: [1, 0.5, 2]", "ones", ONES
    ),
    "a constant equal to the batch size": (
        "over_batch", "{x: {shape: [4, 2]}}", "{x: {shape: [3, 2]}}", "size", "it divides by 4 in every case"
    ),
    "the negative side of leaky relu": ("leaky", POSITIVE, SIGNED, "branch", SIDE % "< 0"),
    "segments of one": ("segments", IDS % (3, [0, 1, 2], ""), IDS % (3, [0, 0, 1], ""), "repeats", TWICE),
    "huber's far branch": (
        "huber", RANGED % (3, -1, 1), STATED % "[1.0, 5.0, -5.0]", "branch", SIDE % "false"
    ),
    "an axis hidden by its size": (
        "softmax", "{logits: {shape: [1, 4]}}", "{logits: {shape: [2, 4]}}", "axis", "other axes have size 1"
    ),
    "indices that never repeat": (
        "gather", IDS % (4, [2, 0], FIXED), IDS % (4, [2, 2], ""), "repeats", TWICE
    ),
    "the ends of a clip": (
        "clip", RANGED % (3, -0.4, 0.4), STATED % "[0.1, 1.5, -1.5]", "branch", SIDE % "second larger"
    ),
    "a scale of 1": ("scaled", SCALED % f"value: 1.0, {FIXED}", SCALED % "value: 2.0", "ones", ONES),
    "the filters of one image": ("convolution", IMAGES % 1, IMAGES % 2, "mean", BATCH),
    "abs on one side": ("absolute", POSITIVE, SIGNED, "branch", SIDE % "< 0"),
    "a sum along one": (
        "along", "{x: {shape: [3, 1]}}", "{x: {shape: [3, 2]}}", "mean", "it goes along axes of size 1"
    ),
    "a choice that is never made": (
        "chosen", CHOICE % "true", CHOICE % "[true, false, true]", "branch", SIDE % "false"
    ),
    "a floor that is never reached": (
        "log_of", POSITIVE, STATED % "[0.01, 1.0, 2.0]", "branch", SIDE % "second larger"
    ),
}  # fmt: skip


def test_what_a_stated_value_hides_shows_where_it_is_moved(tmp_path, mutate):
    spec = "{op: m, forward: 'tensorflow:multiply', inputs: {x: {shape: [3]}, y: {shape: [3], value: 1.0%s}}}"
    for more, hidden in (("", False), (", move: false, reason: meant", True)):
        (tmp_path / "spec.yaml").write_text(spec % more)
        mutants = json.loads(mutate("--format", "json", "--kind", "ones").out)["mutants"]
        assert any(one["outcome"] == "out of sight" for one in mutants) == hidden


@pytest.mark.on_change("the negative side of leaky relu")
@pytest.mark.parametrize("name", HIDDEN)
def test_the_mistake_itself_passes_where_mutate_says_so_and_fails_where_it_shows(
    tmp_path, monkeypatch, command, name
):
    function, hiding, showing, kind, words = HIDDEN[name]
    source = ROOT / "tests" / "acceptance" / "unseen_mistakes.py"
    (tmp_path / "unseen_mistakes.py").write_text(source.read_text())
    monkeypatch.chdir(tmp_path)

    def look(inputs, *arguments):
        spec = f"op: it\nforward: unseen_mistakes:{function}\ninputs: {inputs}\n"
        (tmp_path / "spec.yaml").write_text(spec)
        return command(*arguments[:1], "spec.yaml", "-j", "0", *arguments[1:])

    assert look(hiding, "run").code == 0
    mutants = json.loads(look(hiding, "mutate", "--kind", kind, "--format", "json").out)["mutants"]
    assert any(words in one["message"] for one in mutants if one["outcome"] == "out of sight")
    assert look(showing, "run").code == 1
