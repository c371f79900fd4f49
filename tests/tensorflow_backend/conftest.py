from __future__ import annotations

import itertools
import sys
from types import ModuleType

import pytest

from gradcheck_cli.running.session import run_case, start_tensorflow
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.tensorflow_backend.startup import settings

start_tensorflow()
NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def _settings():
    """As in a run: TensorFlow's log silent, Grappler off."""
    with settings():
        yield


@pytest.fixture
def case_of():
    """Return a function that makes a case of a spec whose functions are at hand.

    They're put into a module made for the purpose, since a spec knows functions by name.
    """
    made = []

    def name_of(module, key, value):
        if isinstance(value, dict):
            return {kind: name_of(module, key, function) for kind, function in value.items()}
        if not callable(value):
            return value
        setattr(module, key, value)
        return f"{module.__name__}:{key}"

    def make(op="op", **spec):
        module = ModuleType(f"functions_of_a_test_{next(NUMBERS)}")
        sys.modules[module.__name__] = module
        made.append(module.__name__)
        for key in ("forward", "gradient", "reference"):
            if key in spec:
                spec[key] = name_of(module, key, spec[key])
        (case,) = load_mapping({"op": op, **spec})
        return case

    yield make
    for name in made:
        del sys.modules[name]


@pytest.fixture
def run(case_of):
    """Return a function that checks a spec whose functions are at hand."""
    return lambda **spec: run_case(case_of(**spec))
