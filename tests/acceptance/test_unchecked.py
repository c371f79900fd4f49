"""Ways of being green with nothing checked: what each says, and its exit code, wherever specs are run.

docs/ci.md has the same table.
"""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support import processes
from tests.support.processes import git

CODE = """
import tensorflow as tf

@tf.custom_gradient
def square(x):
    return x * x, lambda u: 3.0 * x * u  # wrong

def f(x):
    return tf.sin(x)

def boxed(x, boxes):
    return tf.sin(x) + tf.reduce_sum(boxes)

def with_empty(x):
    return tf.sin(x), tf.sin(x)[:0]

def zero(x):
    return 0.0 * x

def constant(x):
    return tf.ones_like(x)

def number(x):
    return tf.cast(tf.reduce_sum(x), tf.int32)

def number_beside(x):
    return tf.sin(x), tf.cast(tf.reduce_sum(square(x)), tf.int32)

def mapped(x):
    return tf.vectorized_map(square, x)

def identity(x):
    return tf.identity(x)

def gradient(op, u):
    return 3.0 * u  # never attached
"""
X = "inputs: {x: {shape: [3]}}"
BOXES = "forward: 'ops:boxed', inputs: {x: {shape: [3]}, boxes: %s}"
NONE = BOXES % "{shape: [0, 4]}"
FULL = "name: full, inputs: {boxes: {shape: [2, 4]}}"
WHOLE = "forward: 'ops:identity', inputs: {x: {value: [1, 2], dtype: int32}}"
TANH = "op_type: Tanh, binding: override, gradient: 'ops:gradient'"


SIN = f"forward: 'ops:f', {X}"
NO_ELEMENT = "no case that ran has an element"


class Way(NamedTuple):
    """A spec of which something is never run, what is said of it, and how a run of it ends."""

    name: str
    keys: str
    says: str
    code: int  # of --changed, too, as the spec has changed
    pytest: str
    against_baseline: int  # where the pair dy/dx of the op has passed in it
    options: tuple[str, ...] = ()


WAYS = [
    Way("empty_input", "forward: 'ops:f', inputs: {x: {shape: [0]}}", NO_ELEMENT, 3, "fails", 3),
    Way("empty_beside_another", BOXES % "{shape: [0, 4]}", NO_ELEMENT, 3, "fails", 3),
    Way("empty_output", f"forward: 'ops:with_empty', {X}", NO_ELEMENT, 3, "fails", 1),
    Way("ragged_without_values", BOXES % "{ragged: {row_lengths: [0, 0]}}", NO_ELEMENT, 3, "fails", 3),
    Way("full_case_skipped", f"{NONE}, cases: [{{{FULL}, needs: [not_there]}}]", NO_ELEMENT, 3, "fails", 3),
    Way(
        "full_case_not_selected", f"{NONE}, cases: [{{{FULL}}}]", NO_ELEMENT, 3, "-", 3, ("--case", "default")
    ),
    Way("all_pairs_skipped", f"{SIN}, pairs: {{'*': skip}}", "skip", 3, "fails", 1),
    Way("needs_what_is_not_there", f"{SIN}, needs: [not_there]", "needs not_there", 3, "skipped", 1),
    Way("for_a_later_version", f"{SIN}, tensorflow: '>=99'", "for TensorFlow >=99", 3, "skipped", 1),
    Way("for_no_version", f"{SIN}, tensorflow: '<2'", "from 2.16 on", 2, "error", 2),
    Way("on_no_device", f"{SIN}, device: 'GPU:7'", "finds no GPU:7", 3, "fails", 3),
    Way("second_order_of_no_dtype", f"{SIN}, second_order: [float32]", "second_order[0]", 2, "error", 2),
    Way("second_order_of_no_mode", f"{SIN}, second_order: [xla]", "second_order[0]", 2, "error", 2),
    Way("zero_everywhere", f"forward: 'ops:zero', {X}", "nothing was tested", 3, "fails", 3),
    Way("no_path", f"forward: 'ops:constant', {X}", "no output depends on any input", 3, "fails", 1),
    Way("a_bound_that_tests_nothing", f"{SIN}, tolerance: {{atol: 1e9}}", "tests nothing", 3, "fails", 3),
    Way("whole_numbers_alone", f"forward: 'ops:number', {X}", "nothing to check", 3, "fails", 3),
    Way("no_floating_input", WHOLE, "nothing to check", 3, "fails", 1),
    Way(
        "gradient_for_a_whole_number",
        f"forward: 'ops:number_beside', {X}",
        "no backward pass ran",
        3,
        "fails",
        1,
    ),
    Way("gradient_that_is_dropped", f"forward: 'ops:mapped', {X}", "no backward pass ran", 3, "fails", 3),
    Way("override_of_no_op", f"{SIN}, {TANH}", "override of Tanh", 3, "fails", 3),
    Way("covers_what_never_runs", f"{SIN}, covers: [Tanh]", "must be seen to run", 3, "fails", 3),
]
assert len(WAYS) >= 20


def spec_of(way):
    return f"{{op: {way.name}, {way.keys}}}\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository in which each spec is sound, and a baseline of the pair dy/dx of each."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "ops.py").write_text(CODE)
    for way in WAYS:
        (folder / f"{way.name}.yaml").write_text(f"{{op: {way.name}, forward: 'ops:f', {X}}}\n")
    done = processes.gradcheck("run", "-q", "--update-baseline", "a.lock", ".", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("init -q", "add -A", "commit -q -m sound"):
        git(folder, *line.split())
    for way in WAYS:
        (folder / f"{way.name}.yaml").write_text(spec_of(way))
    return folder


@pytest.mark.parametrize("way", WAYS, ids=[way.name for way in WAYS])
def test_it_says_so_and_is_no_0(repository, command, monkeypatch, way):
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(repository)
    spec = f"{way.name}.yaml"
    run = command("run", spec, *way.options)
    assert run.code == way.code, run.out + run.err
    assert way.says in " ".join((run.out + run.err).split())
    assert command("run", spec, "--changed", *way.options).code == way.code
    baseline = command("run", spec, "--baseline", "a.lock", *way.options)
    assert baseline.code == way.against_baseline
    assert command("validate", spec).code == (2 if way.code == 2 else 0)


@pytest.mark.once  # a process of pytest
def test_no_test_of_it_passes_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    (tmp_path / "ops.py").write_text(CODE)
    ways = [way for way in WAYS if not way.options]
    for way in ways:
        (tmp_path / f"{way.name}.gradcheck.yaml").write_text(spec_of(way))
    command = [sys.executable, "-m", "pytest", "--gradcheck", "-q", "--continue-on-collection-errors"]
    done = processes.run(*command, "-p", "no:cacheprovider", "--junit-xml", "a.xml", cwd=tmp_path)
    assert done.returncode == 1, done.stdout
    outcomes: dict[str, set[str]] = {}
    for test in ET.parse(tmp_path / "a.xml").iter("testcase"):  # noqa: S314 (pytest has just written it)
        file = f"{test.get('classname')}.{test.get('name')}".lstrip(".").partition(".gradcheck")[0]
        outcomes.setdefault(file, set()).update(part.tag for part in test)
    order = {"error": "error", "failure": "fails", "skipped": "skipped"}
    gravest = {
        name: next((word for tag, word in order.items() if tag in tags), "passes")
        for name, tags in outcomes.items()
    }
    wrong = {way.name: gravest.get(way.name) for way in ways if gravest.get(way.name) != way.pytest}
    assert wrong == {}, done.stdout


def test_the_page_has_the_same_table():
    page = (Path(__file__).parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")
    for way in WAYS:
        words = way.name.replace("_", " ")
        assert f"| {words} | {way.code} | {way.pytest} | {way.against_baseline} |" in page, words
