"""Structures as whole commands: the specs under `specs/structures`, and what is said of one part of one."""

import json

import pytest
import yaml

from tests.support.processes import ROOT

FOLDER = ROOT / "tests" / "planted"


@pytest.fixture
def ask(tmp_path, monkeypatch, command):
    """Return a function that runs a command on one planted op."""
    monkeypatch.chdir(FOLDER)  # its functions are beside it

    def run(name, op, *arguments):
        for document in yaml.safe_load_all((FOLDER / "structures.yaml").read_text()):
            found = [one for one in document["ops"] if one["op"] == op]
            if found:
                file = tmp_path / "spec.yaml"
                spec = {"defaults": document.get("defaults", {}), "ops": found}
                file.write_text(yaml.safe_dump(spec, sort_keys=False))  # the order of inputs is forward's
                return command(name, file, *arguments)
        raise AssertionError(op)

    return run


@pytest.mark.on_change("control_flow-py_function-XLA compiles no EagerPyFunc, which the forward uses.")
@pytest.mark.parametrize(
    ("file", "op", "reason"),
    [
        ("composite", "sparse_matmul", "XLA compiles no SparseTensorDenseMatMul, which the forward uses."),
        ("lookups", "embedding_lookup_sparse", "XLA compiles no SparseReshape, which the forward uses."),
        ("control_flow", "py_function", "XLA compiles no EagerPyFunc, which the forward uses."),
    ],
)
def test_what_xla_can_not_have_is_skipped_with_the_reason(command, monkeypatch, file, op, reason):
    monkeypatch.chdir(ROOT)
    chosen = ("-k", op, "--mode", "xla", "--format", "json")
    done = command("run", f"specs/structures/{file}.yaml", *chosen)
    cases = [case for case in json.loads(done.out)["cases"] if case["op"] == op]
    assert done.code == 3  # nothing of it was checked
    for case in cases:
        assert case["status"] == "skipped"
        assert case["checks"][0]["message"].startswith(reason)


def test_the_table_names_parts_and_what_has_no_gradient(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = command("run", "specs/structures/results.yaml", "--mode", "graph")
    assert done.code == 0
    assert "  dy.values/dx " in done.out
    assert "\n  not differentiated: y.count (int32), y.is_large (bool), y.places (int32)\n" in done.out


def test_show_takes_the_label_of_a_part(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    spec = "specs/structures/arguments.yaml"
    done = command("show", spec, "--pair", "dy.activations[1]/dlayers[0].w", "--output", "0,1")
    assert done.code == 0
    assert "dy.activations[1][0,1]/dlayers[0].w  (y.activations[1] (1, 2), layers[0].w (2, 3))" in done.out
    done = command("show", spec, "--pair", "dmixed/dpair[1]")
    assert "dmixed/dpair[1]  (mixed (2,), pair[1] (2,))" in done.out


# What is wrong in one part is blamed on what made that part.

NAMED = {
    "one_result_of_three": ("dy.parts[1]/dx", "IdentityN", "bad_square_grad"),
    "transposed_sparse": ("dy/da.values", "IdentityN", "gradient"),
    "wrong_ragged": ("dy/drows.flat_values", "IdentityN", "gradient"),
    "repeated_rows": ("dy/dtable", "IdentityN", "gradient"),
    "wrong_slice": ("dy.values/dx", "IdentityN", "<lambda>"),
    "innermost": ("dy/dx", "IdentityN", "bad_square_grad"),
    "in_tensor_array": ("dy/dx", "IdentityN", "bad_square_grad"),
    "in_python": ("dy/dx", "EagerPyFunc", "_EagerPyFuncGrad"),
}


@pytest.mark.on_change("one_result_of_three", "transposed_sparse", "repeated_rows")
@pytest.mark.parametrize("op", NAMED)
def test_the_op_is_blamed(ask, op):
    label, kind, function = NAMED[op]
    done = ask("blame", op, "--pair", label, "--format", "json")
    assert (done.code, done.err) == (1, "")
    (path,) = json.loads(done.out)["paths"]
    (found,) = [one for one in path["ops"] if one["status"] == "mismatched"]
    assert (found["type"], found["gradient"]["function"].rpartition(".")[2]) == (kind, function)


def test_a_lists_loop_is_among_the_undecided(ask):
    for op in ("in_scan", "in_map"):
        done = ask("blame", op)
        assert done.code == 3
        assert "bad_square.<locals>.bad_square_grad at structured_functions.py:" in done.out.replace(
            "\n    ", " "
        )
