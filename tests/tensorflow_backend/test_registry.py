from __future__ import annotations

import sys
from importlib.metadata import version
from types import ModuleType

import pytest

from gradcheck_cli.errors import UsageError
from gradcheck_cli.features.coverage.registry_entries import read_gradients
from gradcheck_cli.tensorflow_backend.private.private_graphs import op_types

CIRCLE = ModuleType("circle")
CIRCLE.__wrapped__ = CIRCLE


def test_an_entry_of_each_status():
    entries = {entry.name: entry for entry in read_gradients()}
    matmul = entries["MatMul"]
    assert matmul.status == "gradient"
    assert matmul.function == "tensorflow.python.ops.math_grad:_MatMulGrad"
    assert matmul.file == "tensorflow/python/ops/math_grad.py"
    assert matmul.line > 1000
    assert entries["Rank"].status == "not differentiable"
    assert entries["QuantizedMatMul"].status == "none"


@pytest.mark.skipif(not version("tensorflow").startswith("2.21."), reason="counts of TensorFlow 2.21")
def test_counts():
    entries = [entry for entry in read_gradients() if entry.file.startswith("tensorflow") or not entry.file]
    registered = [entry for entry in entries if entry.status != "none"]
    assert len(registered) == 609
    assert sum(entry.status == "gradient" for entry in registered) == 414
    assert len(op_types()) == 1910


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module that can be imported from the working directory, and forget it afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    made = []

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        made.append(name)

    yield write
    for name in made:
        sys.modules.pop(name, None)


def test_an_import_shows_what_it_brings_under_its_own_names(module):
    module(
        "registry_test_inner",
        "import tensorflow as tf\n@tf.custom_gradient\ndef inner(x):\n    return x, lambda u: u\n",
    )
    module(
        "registry_test_outer",
        "import tensorflow as tf\n"
        "from registry_test_inner import inner\n"
        "@tf.function\n@tf.custom_gradient\ndef outer(x):\n    return x, lambda u: u\n"
        "class Ops:\n    @staticmethod\n    @tf.custom_gradient\n"
        "    def f(x):\n        return x, lambda u: u\n"
        "@tf.RegisterGradient('RegistryTestOverride')\ndef override(op, u):\n    return u\n",
    )
    brought = [entry for entry in read_gradients(["registry_test_outer"]) if entry.origin != "tensorflow"]
    assert {(entry.name, entry.status) for entry in brought} == {
        ("RegistryTestOverride", "gradient"),
        ("registry_test_inner:inner", "custom_gradient"),
        ("registry_test_outer:outer", "custom_gradient"),
        ("registry_test_outer:Ops.f", "custom_gradient"),
    }
    assert {entry.origin for entry in brought} == {"registry_test_outer"}
    (override,) = [entry for entry in brought if entry.status == "gradient"]
    assert (override.function, override.file) == ("registry_test_outer:override", "registry_test_outer.py")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("raise ValueError('half way')", "ValueError: half way"), ("exit(4)", "SystemExit: 4")],
)
def test_a_module_that_fails_names_the_reason(module, text, reason):
    module("registry_test_broken", text)
    with pytest.raises(UsageError, match=f"--import registry_test_broken: can't be imported: {reason}"):
        read_gradients(["registry_test_broken"])
