"""jacobian: the whole verdict, against `tf.test.compute_gradient` of all inputs and outputs.

compute_gradient looks at one point, so the verdict is held to one sample; the last column has the default,
of two. compute_gradient is called on the function as it is written, which runs it eagerly (but sparse_conv,
whose gradient is there in graphs alone), and on a tf.function of it, and the faster of the two is compared
with. It gives Jacobians and no verdict; ours also traces, and makes its structural checks.
"""

from __future__ import annotations

from functools import partial

from tests.benchmarks.functions_measured import measured_functions
from tests.benchmarks.measuring import (
    geometric_mean,
    in_turn,
    processor_seconds_of,
    shown_ratio,
    shown_seconds,
    table,
)

ROUNDS = 3


def run(options):
    yield f"## jacobian: processor time of one thread, median of {options.rounds or ROUNDS} rounds in turn\n"
    rows, ratios, twice = [], [], []
    for one in measured_functions(options.only):
        found = in_turn(_sides(one), options.rounds or ROUNDS)
        rival = min(seconds for side, seconds in found.items() if side.startswith("compute"))
        ratios.append(rival / found["once"])
        twice.append(rival / found["twice"])
        eager = found.get("compute")
        rows.append(
            [
                one.name,
                "-" if eager is None else shown_seconds(eager),
                shown_seconds(found["compute in a graph"]),
                shown_seconds(found["once"]),
                shown_ratio(ratios[-1]),
                shown_ratio(twice[-1]),
            ]
        )
    rows.append(
        [
            "geometric mean",
            "",
            "",
            "",
            shown_ratio(geometric_mean(ratios)),
            shown_ratio(geometric_mean(twice)),
        ]
    )
    yield table(["function", "TF, eager", "TF, function", "gradcheck", "times as fast", "2 samples"], rows)


def _sides(one):
    import tensorflow as tf

    sides = {
        "compute in a graph": partial(processor_seconds_of, partial(_compute_gradient, one, tf.function))
    }
    if one.name != "sparse_conv":  # an override in eager mode goes unseen, and its PyFunc has no gradient
        sides["compute"] = partial(
            processor_seconds_of, partial(_compute_gradient, one, lambda function: function)
        )
    return {**sides, "once": partial(one.verdict_seconds, 1), "twice": partial(one.verdict_seconds, 2)}


def _compute_gradient(one, wrap):
    """Take the Jacobians of every output by every differentiable input, with compute_gradient's own loop."""
    import tensorflow as tf

    taken = [number for number, tensor in enumerate(one.case.tensors) if tensor.is_differentiable]
    constants = [
        tf.constant(point, tensor.dtype) for point, tensor in zip(one.points, one.case.tensors, strict=True)
    ]

    def outputs(*moved):
        inputs = list(constants)
        for number, value in zip(taken, moved, strict=True):
            inputs[number] = value
        found = one.function(*inputs, **one.case.code.attrs)
        return found if isinstance(found, tuple) else (found,)

    count = max(1, len(one.case.outputs))
    for number in range(count):
        single = wrap(lambda *moved, number=number: outputs(*moved)[number])
        tf.test.compute_gradient(single, [constants[place] for place in taken])
