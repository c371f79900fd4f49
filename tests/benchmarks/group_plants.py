"""plants: errors of 1 % to 100 % in single elements of a large matmul's gradient; what a probe verdict costs.

Ours and PyTorch's `gradcheck(fast_mode=True)` get the same matrices and the same errors (`planted_errors`),
both in float64. An error is found when the verdict is a mismatch, and located when the report's worst
element is the wrong one; `astray` counts verdicts that accuse the other input's gradient, or another
element. Both judge the right gradient too, which must pass; and PyTorch one that is wrong as a whole, which
it must find, so that an error it misses is missed and not lost on the way.

The cost is that of a verdict on the right gradient at one sample, over one forward + backward of the same
op in a tf.function that is traced already. The same verdict on 4 x 4 matrices, which is tracing and what
else it takes to begin, and no arithmetic to speak of, is taken off: an op is traced afresh for every
verdict, so there is no second run on a traced one to be timed.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise

import numpy as np

from gradcheck_cli.running.session import run_case, start_tensorflow
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.spec.values import draw_values
from tests.benchmarks.measuring import in_turn, seconds_of, shown_ratio, shown_seconds, table
from tests.benchmarks.planted_errors import KINDS, draw_plants
from tests.benchmarks.rival_process import RivalProcess

ROUNDS = 5
METHOD = "probe"
DOUBLED = {"kind": "doubled", "input": 0, "element": []}  # the whole gradient of a
BACKGROUND = 4  # rows of the matrices whose verdict is tracing alone
BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0)


def run(options):
    method = options.method or METHOD
    start_tensorflow(threads=1)
    yield f"## plants: {options.size} x {options.size} matmul, method {method}, one thread\n"
    clean = _verdict(_case(options.size, method))
    with RivalProcess("torch") as torch:
        case = _case(options.size, method)
        if torch.installed:
            torch.load("planted_matmul", [draw_values.draw(case, tensor, 0) for tensor in case.tensors])
        yield from _right_gradient(clean, torch)
        yield _plants_table(options, method, torch)
    yield "\n" + _cost(options, method, clean)


def _case(size, method, plant=None):
    square = {"shape": [size, size]}
    spec = {
        "op": "planted_matmul",
        "forward": "tests.benchmarks.benchmark_functions:planted_matmul",
        "inputs": {"a": square, "b": square},
        "attrs": {"plant": plant},
        "method": method,
        "samples": 1,
    }
    return load_mapping(spec)[0]


def _verdict(case):
    result = run_case(case)
    if result.error is not None:
        raise RuntimeError(f"there is no verdict: {result.error.message}")
    return result  # an inconclusive one is no finding


def _right_gradient(clean, torch):
    pairs = ", ".join(
        f"{pair.label} by {pair.judged_by.method}"
        + (
            ""
            if pair.judged_by.miss_probability is None
            else f", miss probability {pair.judged_by.miss_probability:.1e}"
        )
        for pair in clean.pairs
    )
    yield f"The right gradient: gradcheck says {clean.status} ({pairs})"
    if torch.installed:
        for what, plant in (("The right gradient", None), ("Twice the right gradient", DOUBLED)):
            _, passed = torch.check("planted_matmul", "fast", plant)
            yield f"{what}: PyTorch's fast mode says {'passed' if passed else 'mismatched'}"
    yield ""


def _plants_table(options, method, torch):
    counts = Counter()
    for plant in draw_plants(options.plants, options.size):
        row = (plant.kind, sum(abs(plant.size) >= bound for bound in BOUNDS[1:-1]))
        counts[row, "plants"] += 1
        result = _verdict(_case(options.size, method, plant.as_attribute()))
        counts[row, "found"] += result.status == "mismatched"
        hits, strays = _located(result, plant)
        counts[row, "located"] += hits and not strays
        counts[row, "astray"] += strays
        if torch.installed:
            _, passed = torch.check("planted_matmul", "fast", plant.as_attribute())
            counts[row, "torch"] += not passed
    rows = []
    for kind in KINDS:
        for number, (low, high) in enumerate(pairwise(BOUNDS)):
            rows.append([f"{kind}, {low:.0%} to {high:.0%}", *_cells(counts, [(kind, number)], torch)])
    rows.append(["all", *_cells(counts, {row for row, _ in counts}, torch)])
    return table(["error", "plants", "found", "located", "astray", "PyTorch fast found"], rows)


def _cells(counts, rows, torch):
    cells = [str(sum(counts[row, what] for row in rows)) for what in ("plants", "found", "located", "astray")]
    return [*cells, str(sum(counts[row, "torch"] for row in rows)) if torch.installed else "not installed"]


def _located(result, plant):
    """Return whether the right element is accused, and whether anything else is."""
    hit = stray = False
    for pair in result.pairs:
        if pair.status != "mismatched":
            continue
        right = (
            pair.input == "ab"[plant.input]
            and pair.numbers.worst is not None
            and plant.located_at(pair.numbers.worst.input_index, pair.numbers.worst.output_index)
        )
        hit, stray = hit or right, stray or not right
    return hit, stray


def _cost(options, method, clean):
    import tensorflow as tf

    case = _case(options.size, method)
    points = [tf.constant(draw_values.draw(case, tensor, 0)) for tensor in case.tensors]
    upstream = tf.constant(np.ones((options.size, options.size)))

    @tf.function
    def forward_and_backward(a, b):
        with tf.GradientTape() as tape:
            tape.watch((a, b))
            y = tf.matmul(a, b)
        return y, tape.gradient(y, (a, b), upstream)

    def once():
        y, gradients = forward_and_backward(*points)
        return y.numpy(), [gradient.numpy() for gradient in gradients]

    found = in_turn(
        {
            "verdict": partial(seconds_of, partial(run_case, case)),
            "background": partial(seconds_of, partial(run_case, _case(BACKGROUND, method))),
            "forward + backward": partial(seconds_of, once),
        },
        options.rounds or ROUNDS,
    )
    unit = found["forward + backward"]
    net = found["verdict"] - found["background"]
    rows = [
        ["one forward + backward", shown_seconds(unit), "1"],
        ["a verdict, whole", shown_seconds(found["verdict"]), shown_ratio(found["verdict"] / unit)],
        [f"that of {BACKGROUND} x {BACKGROUND}: tracing", shown_seconds(found["background"]), ""],
        ["a verdict, tracing aside", shown_seconds(net), shown_ratio(net / unit)],
    ]
    evaluations = max(pair.judged_by.evaluations for pair in clean.pairs)
    return table(["cost", "seconds", "forward + backward"], rows) + f"\n\nEvaluations an input: {evaluations}"
