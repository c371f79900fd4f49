"""Each layer, loss and activation of Keras with a gradient is in `specs/keras`, or excepted with a reason."""

from __future__ import annotations

import inspect
import re

import pytest

from gradcheck_cli.running.session import start_tensorflow
from gradcheck_cli.spec.load import load
from tests.audit.audit_table import ROOT

start_tensorflow()
keras = pytest.importorskip("keras")

SPECS = ROOT / "specs" / "keras"
DATA = "gives whole numbers or text, or takes them: nothing to differentiate"
AUGMENT = (
    "applies other layers at random, quantisers among them, each of which has a spec or an exception here"
)
EXCEPTIONS = {
    "layers.CategoryEncoding": DATA,
    "layers.Discretization": DATA,
    "layers.HashedCrossing": DATA,
    "layers.Hashing": DATA,
    "layers.IntegerLookup": DATA,
    "layers.StringLookup": DATA,
    "layers.TextVectorization": DATA,
    "layers.MaxNumBoundingBoxes": "takes a dictionary of boxes and pads it; nothing is computed",
    "layers.InputSpec": "describes an input; it is no layer",
    "layers.InputLayer": "stands for an input of a model; every model has one",
    "layers.Layer": "the base class",
    "layers.Wrapper": "the base class of Bidirectional, SpectralNormalization and TimeDistributed",
    "layers.FlaxLayer": "needs JAX and Flax",
    "layers.JaxLayer": "needs JAX",
    "layers.TorchModuleWrapper": "needs PyTorch",
    "layers.TFSMLayer": "loads a SavedModel, whose gradient is what was saved",
    "layers.AugMix": AUGMENT,
    "layers.RandAugment": AUGMENT,
    "layers.AutoContrast": "stretches by the smallest and largest value and clips there: always at an edge",
    "layers.Equalization": "counts values in a histogram: piecewise constant",
    "layers.ContrastLimitedAdaptiveHistogramEqualization": "counts values in histograms: piecewise constant",
    "layers.RandomPosterization": "drops bits: piecewise constant",
    "layers.STFTSpectrogram": "needs SciPy, which gradcheck doesn't install",
    "losses.Loss": "the base class",
}


def _public(module, wanted):
    """Return what a module offers, by its first name: an alias is the same object."""
    found = {}
    for name, value in sorted(vars(module).items(), key=lambda item: (len(item[0]), item[0])):
        if not name.startswith("_") and wanted(value):
            found.setdefault(value, []).append(name)
    return list(found.values())


def offered_parts():
    """Return the names under which Keras offers each layer, loss and activation."""
    not_functions = {"deserialize", "serialize", "get"}
    names = [[f"layers.{name}" for name in names] for names in _public(keras.layers, inspect.isclass)] + [
        [f"losses.{name}" for name in names] for names in _public(keras.losses, inspect.isclass)
    ]
    activations = _public(keras.activations, inspect.isfunction)
    return names + [
        [f"activations.{name}" for name in names] for names in activations if not set(names) & not_functions
    ]


def checked_parts():
    """Return what specs name as forward, or in their op's name where a function of their own builds it."""
    found = set()
    for case in load([SPECS]).cases:
        module, _, name = case.code.forward.target.partition(":")
        if module.startswith("keras."):
            found.add(f"{module.removeprefix('keras.')}.{name}")
        named = re.match(r"keras_([A-Z][A-Za-z0-9]*)", case.op)
        if named:
            found.add(f"layers.{named[1]}")
    return found


def test_keras_is_read():
    assert ["layers.Dense"] in offered_parts()
    assert len(offered_parts()) > 150


def test_nothing_is_silently_left_out():
    known = checked_parts() | EXCEPTIONS.keys()
    missing = [names[0] for names in offered_parts() if not known & set(names)]
    assert not missing, (
        f"Keras {keras.__version__} has {', '.join(missing)}: write a spec in specs/keras, or an exception "
        "above, with the reason."
    )


def test_nothing_is_checked_and_excepted():
    assert not checked_parts() & EXCEPTIONS.keys()
