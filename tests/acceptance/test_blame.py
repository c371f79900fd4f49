"""`trace` and `blame` as whole commands: what is planted is named, what is right never is."""

import json
import time

import pytest
import yaml

from tests.support.processes import ROOT

FOLDER = ROOT / "tests" / "planted"
FUNCTIONS = (FOLDER / "blamed_functions.py").read_text().splitlines()


def line_of(start):
    """Return the line of the planted functions that begins so."""
    (found,) = [number for number, line in enumerate(FUNCTIONS, 1) if line.strip().startswith(start)]
    return found


def ops_of(name):
    """(op's name, a spec of this op alone) of every op of a file."""
    for document in yaml.safe_load_all((FOLDER / name).read_text()):
        for op in document["ops"]:
            yield op["op"], {"defaults": document.get("defaults", {}), "ops": [op]}


BLAMED = dict(ops_of("blamed.yaml"))


@pytest.fixture
def ask(tmp_path, monkeypatch, command):
    """Return a function that runs a command on one planted op."""
    monkeypatch.chdir(FOLDER)  # its functions are beside it

    def run(name, spec, *arguments):
        file = tmp_path / "spec.yaml"
        file.write_text(yaml.safe_dump(spec, sort_keys=False))
        return command(name, file, *arguments)

    return run


# op -> the name of the op that is to be named, its type, and the line of its gradient function.
NAMED = {
    "chain_of_50": ("chain/op31", "Exp", "bad_exp_grad", "def bad_exp_grad"),
    "registered_override": ("Exp", "Exp", "bad_exp_grad", "def bad_exp_grad"),
    "in_tf_function": ("IdentityN", "IdentityN", "bad_square_grad", "def bad_square_grad"),
    "nan_in_the_middle": ("Sin", "Sin", "nan_grad", "def nan_grad"),
    "infinity_in_the_middle": ("Sin", "Sin", "infinite_grad", "def infinite_grad"),
    "none_in_the_middle": ("Sin", "Sin", "none_grad", "def none_grad"),
    "ignoring_in_the_middle": ("Sin", "Sin", "ignoring_grad", "def ignoring_grad"),
    "closing_over": ("IdentityN", "IdentityN", "<lambda>", "return y * outer"),
    "in_converted_function": ("IdentityN", "IdentityN", "bad_cube_grad", "def bad_cube_grad"),
    "several_outputs_inside": ("IdentityN", "IdentityN", "bad_halves_grad", "def bad_halves_grad"),
    "py_func_inside": ("PyFunc", "PyFunc", "bad_numpy_grad", "def bad_numpy_grad"),
    "embedding_inside": ("IdentityN", "IdentityN", "bad_lookup_grad", "def bad_lookup_grad"),
    "large_inside": ("IdentityN", "IdentityN", "bad_scaled_grad", "def bad_scaled_grad"),
    "float32_inside": ("IdentityN", "IdentityN", "bad_square_grad", "def bad_square_grad"),
    "simplex_and_wrong": ("IdentityN", "IdentityN", "bad_square_grad", "def bad_square_grad"),
    "cancelling": ("Sin_1", "Sin", "half_grad", "def half_grad"),
    "nonlinear_inside": ("IdentityN", "IdentityN", "<lambda>", "return tf.sin(x), lambda upstream: tf.clip"),
}
# What TensorFlow differentiates in one go is named whole, with the gradients inside it.
WHOLE = {"in_loop": "While", "recomputed": "IdentityN"}
RIGHT = ["beside_a_weight_that_stays", "of_symmetric", "rounding"]
UNDECIDED = ["jump", "surrogate_inside"]


def test_every_planted_op_is_told_apart():
    assert set(BLAMED) == {*NAMED, *WHOLE, *RIGHT, *UNDECIDED}


@pytest.mark.on_change(
    "ignoring_in_the_middle", "closing_over", "large_inside", "float32_inside", "nonlinear_inside"
)
@pytest.mark.parametrize("op", NAMED)
def test_the_op_is_named_by_name_type_gradient_function_file_and_line(ask, op):
    done = ask("blame", BLAMED[op], "--format", "json")
    name, kind, function, start = NAMED[op]
    assert (done.code, done.err) == (1, "")
    (path,) = json.loads(done.out)["paths"]
    assert path["named"] == name
    (found, *others) = [one for one in path["ops"] if one["status"] == "mismatched"]
    assert len(others) == (op == "cancelling")
    # An override's decorator is the line above it, where Python says that the function begins.
    line = line_of(start) - FUNCTIONS[line_of(start) - 2].startswith("@")
    assert found["type"] == kind
    assert found["gradient"]["function"].rpartition(".")[2] == function
    assert (found["gradient"]["file"], found["gradient"]["line"]) == ("blamed_functions.py", line)
    assert {one["status"] for one in path["ops"]} <= {"mismatched", "passed"}


@pytest.mark.parametrize("op", WHOLE)
def test_what_is_one_op_names_the_gradients_inside_it(ask, op):
    done = ask("blame", BLAMED[op], "--format", "json")
    assert done.code == 1
    (path,) = json.loads(done.out)["paths"]
    (found,) = [one for one in path["ops"] if one["status"] == "mismatched"]
    assert WHOLE[op] in found["type"]
    assert [one["function"] for one in found["inside"]] == ["bad_square.<locals>.bad_square_grad"]


@pytest.mark.parametrize("op", RIGHT)
def test_what_is_right_is_said_to_be(ask, op):
    done = ask("blame", BLAMED[op])
    assert done.code == 0
    assert "blame: every op's own gradient is right on this path" in done.out


@pytest.mark.parametrize("op", UNDECIDED)
def test_where_no_op_can_be_named_it_says_why(ask, op):
    done = ask("blame", BLAMED[op])
    assert done.code == 3
    assert "whose own gradient is wrong" not in done.out


def test_the_31st_of_50_within_five_seconds(ask):
    ask("blame", BLAMED["registered_override"])  # TensorFlow is imported by now
    began = time.process_time()  # not the clock on the wall: tests share their machine
    done = ask("blame", BLAMED["chain_of_50"])
    assert time.process_time() - began < 5
    assert "op 'chain/op31' (Exp), gradient bad_exp_grad at" in done.out


CORRECT = {**dict(ops_of("correct.yaml"))}


@pytest.mark.on_change(
    "reduce_max_tie",
    "top_k",
    "small_float32",
    "softmax_saturated",
    "log_sum_exp",
    "tanh_saturated_float32",
    "gather_by_hand",
    "nested_functions",
    "zero_size",
    "concat_zero_size",
    "zero_derivative",
    "leaky_relu",
    "keras_dense",
)
@pytest.mark.parametrize("op", CORRECT)
def test_a_correct_op_is_never_named(ask, op):
    done = ask("blame", CORRECT[op], "--format", "json")
    assert done.code in (0, 3)
    assert "Traceback" not in done.err
    if done.out:
        # An object a line: one for each case.
        shown = [json.loads(line) for line in done.out.splitlines()]
        assert all(path["named"] is None for one in shown for path in one["paths"])


def test_run_adds_it_to_the_diagnosis_of_a_mismatch(tmp_path, monkeypatch, report):
    monkeypatch.chdir(FOLDER)
    file = tmp_path / "spec.yaml"
    file.write_text(yaml.safe_dump(BLAMED["in_tf_function"]))
    (pair,) = report(file, tmp=tmp_path).report["cases"][0]["pairs"]
    line = line_of("def bad_square_grad")
    assert pair["diagnosis"][-1].startswith(
        "blame: op 'IdentityN' (IdentityN), gradient bad_square.<locals>.bad_square_grad at "
        f"blamed_functions.py:{line} is the first whose own gradient is wrong"
    )


# The trace.


def test_one_type_of_op(ask):
    done = ask("trace", BLAMED["chain_of_50"], "--type", "Exp", "--format", "json")
    ops = json.loads(done.out)["passes"][0]["ops"]
    assert {op["type"] for op in ops} == {"Exp"}
    assert len(ops) == 17  # every third of 50, and the 31st
    done = ask("trace", BLAMED["chain_of_50"], "--type", "Tan")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("--type: no op of type Tan on the way; there are AddV2, Exp, Neg, Sin")


def test_a_forward_that_fails_is_an_error_with_the_users_frames(ask):
    spec = next(spec for name, spec in ops_of("broken.yaml") if name == "forward_raises")
    for name in ("trace", "blame"):
        done = ask(name, spec)
        assert (done.code, done.out) == (3, "")
        assert done.err.startswith("the forward raised ValueError: no square root of a 1-dimensional tensor")
        assert "wrong_gradients.py:" in done.err


def test_a_gradient_that_is_meant_to_be_anothers_can_not_be_blamed(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = command("blame", "specs/seeds/hard_sign.yaml", "--case", "vector")
    assert done.code == 3
    assert "'reference'" in done.out
