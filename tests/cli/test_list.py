"""`gradcheck list` as users call it, in a process of its own: it imports TensorFlow and their modules."""

import json
import re
from functools import partial

import pytest

pytestmark = pytest.mark.feature

MODULE = """
import tensorflow as tf

print("printed on import")

@tf.custom_gradient
def soft(x):
    return x, lambda upstream: upstream

@tf.RegisterGradient("MineSquare")
def mine(op, upstream):
    return upstream
"""
SPEC = "op: product\nop_type: MatMul\ninputs: {a: {shape: [2, 2]}, b: {shape: [2, 2]}}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "mygradients.py").write_text(MODULE)
    (folder / "broken.py").write_text("import no_such_module_here\n")
    (folder / "specs").mkdir()
    (folder / "specs" / "product.yaml").write_text(SPEC)
    return folder


@pytest.fixture(scope="module")
def gradients(warm, folder):
    """Call `gradcheck list` in the project's folder."""
    return partial(warm, "list", cwd=folder)


@pytest.fixture(scope="module")
def everything(gradients):
    done = gradients("--format", "json", "--status", "all", "--import", "mygradients", "--specs", "specs")
    assert done.returncode == 0, done.stderr
    return done.stderr, json.loads(done.stdout)


@pytest.mark.once  # a process that starts TensorFlow
def test_start_up_chatter_and_prints_stay_off_standard_output(everything):
    assert everything[0] == "printed on import\n"


def test_imports_come_last_with_their_origin(everything):
    last = everything[1]["gradients"][-2:]
    assert {(entry["origin"], entry["file"]) for entry in last} == {("mygradients", "mygradients.py")}
    assert [(entry["op_type"], entry["status"], entry["line"]) for entry in last] == [
        ("MineSquare", "gradient", 10),
        ("mygradients:soft", "custom_gradient", 6),
    ]


def test_specs_cover_op_types(everything, gradients):
    (matmul,) = [entry for entry in everything[1]["gradients"] if entry["op_type"] == "MatMul"]
    assert matmul["specs"] == ["specs/product.yaml:1"]
    (line,) = gradients("MatMul", "--specs", "specs").stdout.splitlines()[1:-1]
    assert line.endswith("specs/product.yaml:1")


def test_patterns_are_globs_in_any_case(gradients):
    done = gradients("batchmatmul*")
    _, *lines, end = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"]
    assert re.fullmatch(r"3 entries: 3 gradient · \d,\d+ op types in this TensorFlow", end)
    assert "tensorflow/python/ops/math_grad.py:" in done.stdout


def test_nothing_found_says_what_is_near(gradients):
    done = gradients("MatMull")
    assert done.returncode == 0
    assert done.stderr == "nothing matches 'MatMull'. Did you mean 'MatMul'?\n"


@pytest.mark.parametrize(
    ("name", "wording"),
    [
        ("no_such", "--import no_such: can't be imported: ModuleNotFoundError: No module named 'no_such'."),
        ("broken", "--import broken: can't be imported: ModuleNotFoundError: No module named 'no_such_m"),
    ],
)
def test_a_module_that_can_not_be_imported(gradients, name, wording):
    done = gradients("--import", name)
    assert done.returncode == 2
    assert done.stderr.startswith(wording)
    assert "Traceback" not in done.stderr
