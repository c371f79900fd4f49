# ruff: noqa: T201 (a script: printing is what it is for)
"""Random TensorFlow programs, right and wrong: `python -m tests.checking.program_campaign 100 [FIRST]`.

A program has one to three inputs (drawn, in a range, stated, zero or one) and two to seven steps: elementwise
ops, kinks, shapes, sums, scans, linear algebra, conditions and loops. Its gradient is TensorFlow's, in a
custom gradient. A wrong one is off, somewhere, at half of twelve draws at least. What is said of a right one
that doesn't pass, and of a wrong one that isn't a mismatch, is printed whole. No step is an op whose gradient
in TensorFlow is wrong at single points: those of `cumprod` and `divide_no_nan` are 0 at 0.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import gradcheck_cli

MOST_ELEMENTS, LARGEST, TRIES, DRAWS, WRONG = 60, 1e4, 60, 12, 2
Generator = np.random.Generator
Step = Callable[..., Any]
Gradient = Callable[[Sequence[Any], Sequence[Any]], list[Any]]
total = tf.reduce_sum


def _matrix(x: Any) -> Any:
    return tf.matmul(x, x, transpose_b=True) + tf.eye(x.shape[-2], dtype=x.dtype)


ONE: dict[str, Step] = {
    **{
        name: getattr(tf.nn, name)
        for name in ("softplus", "relu", "relu6", "elu", "gelu", "silu", "leaky_relu")
    },
    **{name: getattr(tf, name) for name in ("tanh", "sin", "sigmoid", "square", "abs", "atan", "asinh")},
    "erf": tf.math.erf,
    "exp": lambda x: tf.exp(tf.minimum(x, 4)),
    "log1p": lambda x: tf.math.log1p(tf.abs(x)),
    "root": lambda x: tf.sqrt(1 + x * x),
    "lgamma": lambda x: tf.math.lgamma(1.5 + x * x),
    "clip": lambda x: tf.clip_by_value(x, -0.5, 1.0),
    "cube": lambda x: x**3,
    "where": lambda x: tf.where(x > 0, x * x, tf.sin(x)),
    "huber": lambda x: tf.where(tf.abs(x) < 1, 0.5 * x * x, tf.abs(x) - 0.5),
    "round": lambda x: x + tf.round(x * 2),
    "floor": lambda x: tf.floor(x) * x,
    "sign": lambda x: tf.sign(x) * x * x,
}
TWO: dict[str, Step] = {
    **{name: getattr(tf, name) for name in ("add", "subtract", "multiply", "maximum", "minimum", "matmul")},
    "divide": lambda a, b: a / (1 + b * b),
    "atan2": lambda a, b: tf.atan2(a, 1 + b * b),
    "hypot": lambda a, b: tf.sqrt(a * a + b * b + 0.1),
    "power": lambda a, b: tf.pow(tf.abs(a) + 0.5, tf.tanh(b)),
    "larger": lambda a, b: tf.where(a > b, a * b, a + b),
}
# Of a tensor's first or last axis, by seeds of the step's own.
AXIS: dict[str, Step] = {
    "sum": total,
    "mean": lambda x, i: tf.reduce_mean(x, i, keepdims=True),
    "max": tf.reduce_max,
    "prod": tf.reduce_prod,
    "logsumexp": tf.reduce_logsumexp,
    "variance": tf.math.reduce_variance,
    "cumsum": lambda x, i: tf.cumsum(x, i, exclusive=True, reverse=i == 0),
    "softmax": tf.nn.softmax,
    "gather": lambda x, i: tf.gather(x, [0, x.shape[i] - 1, 0], axis=i),
    "reverse": lambda x, i: tf.reverse(x, [i]),
    "roll": lambda x, i: tf.roll(x, 1, i),
    "concat": lambda x, i: tf.concat([x, x * x], i),
    "unstack": lambda x, i: tf.stack([part * (k + 1) for k, part in enumerate(tf.unstack(x, axis=i))]),
    "transpose": lambda x, _: tf.transpose(x),
    "flatten": lambda x, _: tf.reshape(x, [-1]),
    "pad": lambda x, _: tf.pad(x, [[0, 1]] * x.shape.rank),
    "tile": lambda x, _: tf.tile(x, [2] + [1] * (x.shape.rank - 1)),
    "sort": lambda x, _: tf.sort(x),
    "top": lambda x, _: tf.math.top_k(x, k=max(1, x.shape[-1] // 2)).values,
    "segments": lambda x, _: tf.math.segment_sum(x, sorted(k % 3 for k in range(x.shape[0]))),
    "layer_norm": lambda x, i: x * tf.math.rsqrt(tf.math.reduce_variance(x, i, keepdims=True) + 0.1),
    "scan": lambda x, _: tf.scan(lambda carry, own: tf.tanh(carry) * 0.5 + own, x),
    "map": lambda x, _: tf.map_fn(lambda own: total(own) * own, x),
    "scatter": lambda x, _: tf.tensor_scatter_nd_add(x, [[0]], x[-1:] * x[-1:]),
    "outer": lambda x, _: tf.einsum("...i,...j->...ij", x, x),
    "real_fft": lambda x, _: tf.math.real(tf.signal.rfft(x)),
    "convolve": lambda x, _: tf.math.real(
        tf.signal.fft(tf.complex(x, tf.sin(x))) * tf.signal.fft(tf.complex(x, x * x))
    ),
    "cond": lambda x, _: tf.cond(total(x) > 0, lambda: x * x, lambda: tf.sin(x)),
    "loop": lambda x, _: tf.while_loop(lambda k, _: k < 3, lambda k, y: (k + 1, tf.sin(y) + 0.5 * x), [0, x])[
        1
    ],
    "inverse": lambda x, _: tf.linalg.inv(_matrix(x)),
    "cholesky": lambda x, _: tf.linalg.cholesky(_matrix(x)),
    "log_det": lambda x, _: tf.linalg.logdet(_matrix(x)),
    "solve": lambda x, _: tf.linalg.solve(_matrix(x), x),
    "eigenvalues": lambda x, _: tf.linalg.eigvalsh(_matrix(x)),
    "max_pool": lambda x, _: tf.nn.max_pool2d(x[None, :, :, None], 2, 1, "SAME"),
}


def _draw_input(generator: Generator, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return an input as a spec has it."""
    low, values = round(generator.normal(), 2), generator.normal(size=shape).round(2).tolist()
    choices = [
        {},
        {"uniform": {"low": low, "high": low + 1.5}},
        {"value": values},
        {"value": 0.0},
        {"value": 1.0},
    ]
    return {**choices[generator.choice(5, p=[0.45, 0.3, 0.15, 0.05, 0.05])], "shape": list(shape)}


@dataclass
class Program:
    """Steps, each with the places of what it takes: inputs first, then results."""

    dtype: str
    inputs: dict[str, Any]
    shapes: list[tuple[int, ...]]
    steps: list[tuple[str, Step, tuple[int, ...]]]

    @staticmethod
    def draw(seed: int) -> Program:
        """Return a program whose steps all run."""
        generator = np.random.default_rng(seed)
        dtype = str(generator.choice(["float64", "float32"], p=[0.7, 0.3]))
        base = tuple(generator.integers(1, 5, generator.integers(0, 4)).tolist())
        shapes = [base[generator.integers(0, len(base) + 1) :] for _ in range(generator.integers(1, 4))]
        inputs = {name: _draw_input(generator, shape) for name, shape in zip("abc", shapes, strict=False)}
        known = [tf.constant(generator.normal(size=shape) * 0.7 + 0.1, dtype) for shape in shapes]
        program, wanted = Program(dtype, inputs, shapes, []), generator.integers(2, 8)
        for _ in range(TRIES):
            # What came last is likelier, so that most steps lead to the outputs.
            last, other = (
                len(known) - 1 - min(len(known) - 1, generator.geometric(0.5) - 1) for _ in range(2)
            )
            table = (ONE, TWO, AXIS)[generator.choice(3, p=[0.35, 0.3, 0.35])]
            name = str(generator.choice(list(table)))
            takes = (int(last),) if table is not TWO else (int(last), int(other))
            step = table[name]
            if (table is TWO and last == other) or (table is AXIS and not known[last].shape.rank):
                continue
            if table is AXIS:
                axis = int(generator.choice([0, -1]))
                step = lambda x, step=step, axis=axis: step(x, axis)  # noqa: E731
            try:
                result = tf.convert_to_tensor(step(*(known[place] for place in takes)))
            except (ValueError, TypeError, IndexError, tf.errors.OpError):
                continue
            size = int(tf.size(result))
            if not 0 < size <= MOST_ELEMENTS or not np.abs(result).max() <= LARGEST:
                continue
            program.steps.append((name, step, takes))
            known.append(result)
            if len(program.steps) == wanted:
                break
        return program

    def run(self, inputs: Sequence[Any], cut: tuple[int, int] = (-1, -1)) -> Any:
        """Return the last result; `cut` names a step, and which of what it takes has no gradient."""
        known = list(inputs)
        for at, (_, step, takes) in enumerate(self.steps):
            own = [known[place] for place in takes]
            if at == cut[0]:
                own[cut[1]] = tf.stop_gradient(own[cut[1]])
            known.append(tf.convert_to_tensor(step(*own)))
        return known[-1]

    def gradient(self, inputs: Sequence[Any], upstream: Any, cut: tuple[int, int] = (-1, -1)) -> list[Any]:
        """Return TensorFlow's gradients; zeros where nothing connects."""
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = self.run(inputs, cut)
        return list(tape.gradient(output, inputs, upstream, unconnected_gradients="zero"))

    def draw_inputs(self, generator: Generator) -> list[Any]:
        """Return inputs near those that its spec draws."""
        drawn = []
        for shape, spec in zip(self.shapes, self.inputs.values(), strict=True):
            if "value" in spec:
                own = np.broadcast_to(spec["value"], shape)
            elif "uniform" in spec:
                own = generator.uniform(**spec["uniform"], size=shape)
            else:
                own = generator.normal(size=shape)
            drawn.append(tf.constant(own, self.dtype))
        return drawn


def _mistakes(program: Program, generator: Generator) -> Iterator[tuple[str, Gradient]]:
    """Yield gradients with a mistake, by name."""
    place = int(generator.integers(len(program.shapes)))

    def changed(change: Callable[[Any, Any], Any]) -> Gradient:
        def gradient(inputs: Sequence[Any], upstream: Any) -> list[Any]:
            own = program.gradient(inputs, upstream)
            own[place] = change(own[place], inputs[place])
            return own

        return gradient

    element = np.ones(program.shapes[place])
    element.flat[generator.integers(element.size)] = generator.choice([0.0, 1.1, 2.0, -1.0])
    yield "twice", changed(lambda g, _: 2 * g)
    yield "a per cent more", changed(lambda g, _: g * tf.constant(1.01, g.dtype))
    yield "other sign", changed(lambda g, _: -g)
    yield "zero", changed(lambda g, _: tf.zeros_like(g))
    yield "more above a half", changed(lambda g, x: tf.where(x > 0.5, 1.5 * g, g))
    yield "none below minus a half", changed(lambda g, x: tf.where(x < -0.5, tf.zeros_like(g), g))
    yield "an element", changed(lambda g, _: g * tf.constant(element, g.dtype))
    yield "a mean", changed(lambda g, _: g / element.size)
    yield "spread evenly", changed(lambda g, _: tf.zeros_like(g) + tf.reduce_mean(g))
    yield "clipped", changed(lambda g, _: tf.clip_by_value(g, -1, 1))
    yield "of old inputs", lambda inputs, u: program.gradient([x * 1.1 + 0.01 for x in inputs], u)
    yield "without upstream", lambda inputs, u: program.gradient(inputs, tf.ones_like(u))
    for at, (name, _, takes) in enumerate(program.steps):
        for own in range(len(takes)):
            cut = (at, own)
            yield f"nothing through {name} {at}", lambda inputs, u, cut=cut: program.gradient(inputs, u, cut)


def _is_wrong(program: Program, gradient: Gradient, generator: Generator) -> bool:
    """Whether a gradient is off by a thousandth of the largest element at half of some draws."""
    count = 0
    for _ in range(DRAWS):
        inputs = program.draw_inputs(generator)
        upstream = tf.constant(generator.normal(size=program.run(inputs).shape), program.dtype)
        pairs = zip(program.gradient(inputs, upstream), gradient(inputs, upstream), strict=True)
        count += any(np.abs(a - b).max() > 1e-3 * max(np.abs(a).max(), 1e-2) for a, b in pairs)
    return 2 * count >= DRAWS


def _check(program: Program, gradient: Gradient) -> Any:
    @tf.custom_gradient
    def op(*inputs: Any) -> Any:
        return program.run(inputs), lambda upstream: gradient(inputs, upstream)

    names = ", ".join(program.inputs)
    forward = eval(f"lambda {names}: op({names})", {"op": op})  # noqa: S307 (inputs have names)
    return gradcheck_cli.check(
        {"op": "program", "forward": forward, "dtypes": [program.dtype], "inputs": program.inputs}
    )


def main() -> int:
    """Check programs from a first one on; the exit code is 1 if a wrong gradient is green."""
    count, start = (*map(int, sys.argv[1:]), 0)[:2]
    said: Counter[tuple[str, str]] = Counter()
    for seed in range(start, start + count):
        program, generator = Program.draw(seed), np.random.default_rng([seed, 1])
        mistakes = list(_mistakes(program, generator))
        chosen = [mistakes[place] for place in generator.permutation(len(mistakes))[:WRONG]]
        wrong = [pair for pair in chosen if _is_wrong(program, pair[1], generator)]
        for name, gradient in [("right", program.gradient), *wrong]:
            report = _check(program, gradient)
            kind, status = "right" if name == "right" else "wrong", str(report.cases[0].status)
            said[kind, status] += 1
            if (kind, status) not in {("right", "passed"), ("wrong", "mismatched")}:
                steps = " ".join(step for step, *_ in program.steps)
                print(f"{seed} {name}: {steps}\n{gradcheck_cli.render_report(report)}", flush=True)
    for (kind, status), number in sorted(said.items()):
        print(f"{kind:<6} {status:<14} {number:>6}")
    return int(said["wrong", "passed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
