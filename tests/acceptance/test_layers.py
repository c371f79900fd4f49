"""The layers under `specs/layers`, whole: each passes in every mode it names, weights included."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.acceptance_root import ROOT

LAYERS = {
    "dense": {"x", "kernel", "bias"},
    "dense_float32": {"x", "kernel", "bias"},
    "affine": {"x", "weights", "shift"},
    "embedding": {"embeddings"},
    "conv2d": {"x", "kernel", "bias"},
    "batch_normalization_training": {"x", "gamma", "beta"},
    "batch_normalization_inference": {"x", "gamma", "beta"},
    "layer_normalization": {"x", "gamma", "beta"},
    "multi_head_attention": {
        "x",
        *(f"{name}.kernel" for name in ("query", "key", "value", "attention_output")),
    },
    "lstm": {"x", "kernel", "recurrent_kernel", "bias"},
    "gru": {"x", "kernel", "recurrent_kernel", "bias"},
    "scaled_softplus": {"x", "scale", "shift"},
    "recompute_grad": {"x", "kernel", "bias"},
}


@pytest.mark.once
def test_every_layer_passes_in_every_mode(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = command("run", "specs/layers", "--strict", "--format", "json")
    found = json.loads(done.out)
    assert (done.code, found["summary"]["mismatched"]) == (0, 0)
    assert {case["op"] for case in found["cases"]} == set(LAYERS)
    for case in found["cases"]:
        assert (case["status"], case["error"]) == ("passed", None)
        assert {pair["input"] for pair in case["pairs"]} == LAYERS[case["op"]]
    assert {case["mode"] for case in found["cases"]} == {"graph", "dynamic", "eager", "xla"}


def test_a_weights_jacobian_is_shown(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = command("show", "specs/layers/convolution.yaml", "--pair", "dy/dbias", "--output", "0,0,0,1")
    assert done.code == 0
    assert "dy[0,0,0,1]/dbias  (y (1, 3, 3, 2), bias (2,))" in done.out


def test_a_variable_that_is_none_is_told(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = command("show", "specs/layers/convolution.yaml", "--pair", "dy/dbiases")
    assert done.code == 2
    assert "--pair: no pair 'dy/dbiases'; there are dy/dx, dy/dkernel, dy/dbias." in done.err
