"""Ways of being green with nothing checked: what each says, and its exit code, wherever specs are run.

docs/ci.md has the same table.
"""

import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import processes

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
FULL = "inputs: {boxes: {shape: [2, 4]}}"


@dataclass(frozen=True)
class Way:
    """A spec of which something is never run, what is said of it, and the exit code of `run`."""

    name: str
    keys: str
    says: str
    code: int = 3  # of --changed, too, as the spec has changed
    pytest: str = "fails"
    against_baseline: int = 3  # where the pair dy/dx of the op has passed in it
    options: tuple[str, ...] = ()


WAYS = [
    Way("empty_input", "forward: 'ops:f', inputs: {x: {shape: [0]}}", "no case that ran has an element"),
    Way("empty_beside_another", BOXES % "{shape: [0, 4]}", "no case that ran has an element"),
    Way(
        "empty_output",
        f"forward: 'ops:with_empty', {X}",
        "no case that ran has an element",
        against_baseline=1,
    ),
    Way(
        "ragged_without_values", BOXES % "{ragged: {row_lengths: [0, 0]}}", "no case that ran has an element"
    ),
    Way(
        "full_case_skipped",
        f"{BOXES % '{shape: [0, 4]}'}, cases: [{{name: full, needs: [not_there], {FULL}}}]",
        "no case that ran has an element",
    ),
    Way(
        "full_case_not_selected",
        f"{BOXES % '{shape: [0, 4]}'}, cases: [{{name: full, {FULL}}}]",
        "no case that ran has an element",
        options=("--case", "default"),
    ),
    Way(
        "all_pairs_skipped",
        f"forward: 'ops:f', {X}, pairs: {{'*': skip}}",
        "skip",
        against_baseline=1,
    ),
    Way(
        "needs_what_is_not_there",
        f"forward: 'ops:f', needs: [not_there], {X}",
        "needs not_there",
        pytest="skipped",
        against_baseline=1,
    ),
    Way(
        "for_a_later_version",
        f"forward: 'ops:f', tensorflow: '>=99', {X}",
        "for TensorFlow >=99",
        pytest="skipped",
        against_baseline=1,
    ),
    Way(
        "for_no_version",
        f"forward: 'ops:f', tensorflow: '<2', {X}",
        "from 2.16 on",
        2,
        pytest="error",
        against_baseline=2,
    ),
    Way("on_no_device", f"forward: 'ops:f', device: 'GPU:7', {X}", "finds no GPU:7"),
    Way(
        "second_order_of_no_dtype",
        f"forward: 'ops:f', second_order: [float32], {X}",
        "second_order[0]",
        2,
        pytest="error",
        against_baseline=2,
    ),
    Way(
        "second_order_of_no_mode",
        f"forward: 'ops:f', second_order: [xla], {X}",
        "second_order[0]",
        2,
        pytest="error",
        against_baseline=2,
    ),
    Way("zero_everywhere", f"forward: 'ops:zero', {X}", "nothing was tested"),
    Way("no_path", f"forward: 'ops:constant', {X}", "no output depends on any input", against_baseline=1),
    Way("a_bound_that_tests_nothing", f"forward: 'ops:f', tolerance: {{atol: 1e9}}, {X}", "tests nothing"),
    Way("whole_numbers_alone", f"forward: 'ops:number', {X}", "nothing to check"),
    Way(
        "no_floating_input",
        "forward: 'ops:identity', inputs: {x: {value: [1, 2], dtype: int32}}",
        "nothing to check",
        against_baseline=1,
    ),
    Way(
        "gradient_for_a_whole_number",
        f"forward: 'ops:number_beside', {X}",
        "no backward pass ran",
        against_baseline=1,
    ),
    Way("gradient_that_is_dropped", f"forward: 'ops:mapped', {X}", "no backward pass ran"),
    Way(
        "override_of_no_op",
        f"forward: 'ops:f', op_type: Tanh, binding: override, gradient: 'ops:gradient', {X}",
        "override of Tanh",
    ),
    Way("covers_what_never_runs", f"forward: 'ops:f', covers: [Tanh], {X}", "must be seen to run"),
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
    command = [sys.executable, "-m", "gradcheck_cli", "run", "-q", "--update-baseline", "a.lock", "."]
    done = processes.run(*command, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "sound"]):
        command = ["git", *words]
        subprocess.run(command, cwd=folder, check=True)
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
        in_pytest = "-" if way.options else way.pytest
        assert f"| {words} | {way.code} | {in_pytest} | {way.against_baseline} |" in page, words
