"""models: single errors in the weights' gradients of an MLP, an LSTM and a transformer, and common mistakes.

An error of 1 % to 100 % of one element of a weight's gradient, one at a time, comes from a custom gradient
in the middle of the model. It is found when the weight's pair is a mismatch, and located when the element
that the report names is the wrong one.
"""

from __future__ import annotations

import math

import numpy as np

from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.results import Status
from gradcheck_cli.running.session import start_tensorflow, user_code
from gradcheck_cli.spec.load import load_mapping
from tests.benchmarks.measuring import table
from tests.benchmarks.planted_models import MISTAKES, MODELS, spec_of

BOUNDS = (0.01, 0.1, 1.0)


def run(options):
    start_tensorflow(threads=1)
    yield f"## models: {options.plants} errors of one element each, one thread\n"
    rows = []
    for name in MODELS:
        right = check(spec_of(name))
        passed = sum(pair.status is Status.PASSED for pair in right)
        missed = max(pair.judged_by.miss_probability or 0.0 for pair in right)
        found = [_found(name, *error) for error in draw_errors(name, options.plants)]
        for low, high in ((0.01, 0.1), (0.1, 1.0)):
            some = [one for one in found if low <= abs(one[0]) <= high]
            rows.append(
                [
                    name,
                    f"{low:.0%} to {high:.0%}",
                    str(len(some)),
                    str(sum(one[1] for one in some)),
                    str(sum(one[2] for one in some)),
                    f"{passed} of {len(right)}",
                    f"{missed:.1%}",
                ]
            )
    header = ["model", "errors of", "planted", "found", "located", "right pairs pass", "said to be missed"]
    yield table(header, rows)
    yield "\n"
    yield table(["mistake", "model", "found in"], [[mistake, *look_for(mistake)] for mistake in MISTAKES])


def draw_errors(name, count):
    """Draw places in a model's weight, and sizes that are log-uniform from 1 % to 100 %, up or down."""
    rng = np.random.default_rng([len(name), 7])
    shape = MODELS[name][1]
    for _ in range(count):
        size = math.exp(rng.uniform(math.log(BOUNDS[0]), 0.0)) * (1 if rng.integers(0, 2) else -1)
        yield tuple(int(rng.integers(0, length)) for length in shape), size


def check(spec):
    """Return the pairs of a spec; `run` would also look for the op to blame, which takes longer than this."""
    from gradcheck_cli.tensorflow_backend.openers import opener_of

    case = load_mapping(spec)[0]
    with user_code(case):
        opener = opener_of(case, case.mode)
        return check_case(opener.case, opener, [0]).pairs


def _found(name, place, size):
    """Return an error's size, and whether it was found, and where it is."""
    pairs = check(spec_of(name, place=list(place), size=size))
    wrong = [pair for pair in pairs if pair.status is Status.MISMATCHED]
    found = [pair for pair in wrong if pair.input == MODELS[name][0]]
    located = any(
        pair.numbers.worst is not None and tuple(pair.numbers.worst.input_index) == place for pair in found
    )
    return size, bool(found), located


def look_for(mistake):
    """Return the model that a mistake is made in, and the pairs in which it is found."""
    name = MISTAKES[mistake]
    pairs = check(spec_of(name, mistake=mistake))
    wrong = [pair.input for pair in pairs if pair.status is Status.MISMATCHED]
    return name, ", ".join(wrong)
