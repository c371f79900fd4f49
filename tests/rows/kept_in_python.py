"""What a NumPy function keeps for its gradient: for each call, or where the next call overwrites it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tests.support.row import Row, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Maker = Callable[
        [Callable[[Any], Any], Callable[[Any], Any]], tuple[Callable[..., Any], Callable[..., Any]]
    ]

X = {"x": {"shape": [2, 3]}}
KEPT: dict[str, Any] = {}
SLOPES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sin": (np.sin, np.cos),
    "square": (np.square, lambda x: 2.0 * x),
    "tanh": (np.tanh, lambda x: 1.0 - np.tanh(x) ** 2),
}


# Each makes a forward (x) and a gradient (u, x), both of arrays.


def from_input(value: Any, slope: Any) -> Any:
    """Keep nothing: the gradient gets the input again."""
    return value, lambda u, x: u * slope(x)


def kept_unused(value: Any, slope: Any) -> Any:
    """Keep the last input for a look at it, and don't use it."""

    def forward(x: Any) -> Any:
        KEPT["seen"] = x.copy()
        return value(x)

    return forward, lambda u, x: u * slope(x)


def counted(value: Any, slope: Any) -> Any:
    calls = [0]

    def forward(x: Any) -> Any:
        calls[0] += 1
        return value(x)

    return forward, lambda u, x: u * slope(x)


def memoised(value: Any, slope: Any) -> Any:
    """What was computed for an input, found again by that input."""
    known: dict[bytes, Any] = {}

    def forward(x: Any) -> Any:
        known[x.tobytes()] = slope(x)
        return value(x)

    return forward, lambda u, x: u * known[x.tobytes()]


def checked_cache(value: Any, slope: Any) -> Any:
    """The last input's slope, computed anew where the input is another."""
    last: dict[str, Any] = {}

    def forward(x: Any) -> Any:
        last.update(x=x.copy(), slope=slope(x))
        return value(x)

    def gradient(u: Any, x: Any) -> Any:
        if not np.array_equal(last["x"], x):
            last.update(x=x.copy(), slope=slope(x))
        return u * last["slope"]

    return forward, gradient


def on_self(value: Any, slope: Any) -> Any:
    class Op:
        def forward(self, x: Any) -> Any:
            self.x = x.copy()
            return value(x)

        def gradient(self, u: Any, _x: Any) -> Any:
            return u * slope(self.x)

    op = Op()
    return op.forward, op.gradient


def in_global(value: Any, slope: Any) -> Any:
    def forward(x: Any) -> Any:
        KEPT["x"] = x.copy()
        return value(x)

    return forward, lambda u, _: u * slope(KEPT["x"])


def intermediate(value: Any, slope: Any) -> Any:
    kept: list[Any] = [None]

    def forward(x: Any) -> Any:
        kept[0] = slope(x)
        return value(x)

    return forward, lambda u, _: u * kept[0]


def in_list(value: Any, slope: Any) -> Any:
    kept: list[Any] = []

    def forward(x: Any) -> Any:
        kept.append(x.copy())
        return value(x)

    return forward, lambda u, _: u * slope(kept[-1])


def in_buffer(value: Any, slope: Any) -> Any:
    """A buffer that each call fills again."""
    buffer = np.zeros((2, 3))

    def forward(x: Any) -> Any:
        buffer[...] = x
        return value(x)

    return forward, lambda u, _: u * slope(buffer)


def half_kept(value: Any, slope: Any) -> Any:
    """The gradient takes the kept slope in the first row only."""
    kept: list[Any] = [None]

    def forward(x: Any) -> Any:
        kept[0] = slope(x)
        return value(x)

    def gradient(u: Any, x: Any) -> Any:
        right = slope(x)
        right[0] = kept[0][0]
        return u * right

    return forward, gradient


RIGHT = (from_input, kept_unused, counted, memoised, checked_cache)
WRONG = (on_self, in_global, intermediate, in_list, in_buffer, half_kept)


def custom(
    forward: Any, gradient: Any, call: Callable[..., Any], wrap: Callable[[Any], Any]
) -> Callable[[], Any]:
    """A custom gradient that calls NumPy in both passes."""

    def build() -> Any:
        @tf.custom_gradient
        def op(x: Any) -> Any:
            y = tf.ensure_shape(call(forward, [x], tf.float64), x.shape)
            return y, lambda u: tf.ensure_shape(call(gradient, [u, x], tf.float64), x.shape)

        return wrap(op)

    return build


def eagerly(function: Any, inputs: Any, dtype: Any) -> Any:
    """`tf.py_function`, whose function gets tensors."""
    return tf.py_function(lambda *tensors: function(*(tensor.numpy() for tensor in tensors)), inputs, dtype)


def stateless(function: Any, inputs: Any, dtype: Any) -> Any:
    return tf.numpy_function(function, inputs, dtype, stateful=False)


def as_it_is(op: Any) -> Any:
    return lambda x: op(x)  # noqa: PLW0108 (AutoGraph is to leave the custom gradient alone)


def in_function(op: Any) -> Any:
    return tf.function(lambda x: op(x), autograph=False)  # noqa: PLW0108 (as above)


CALLS = {"numpy": tf.numpy_function, "py": eagerly, "stateless": stateless}


def _rows() -> Iterator[Row]:
    for makers, truth in ((RIGHT, "right"), (WRONG, "wrong")):
        for make in makers:
            name = make.__name__
            for slope, parts in SLOPES.items():
                forward, gradient = make(*parts)
                keys: dict[str, Any] = {"build": {}, "modes": ["graph"]}
                build = custom(forward, gradient, tf.numpy_function, as_it_is)
                yield Row(f"{name}_{slope}", build, None, X, truth, keys=keys)
            for call in ("py", "stateless"):
                forward, gradient = make(*SLOPES["sin"])
                build = custom(forward, gradient, CALLS[call], as_it_is)
                yield Row(f"{name}_{call}", build, None, X, truth, keys=keys)
            forward, gradient = make(*SLOPES["sin"])
            build = custom(forward, gradient, tf.numpy_function, in_function)
            yield Row(f"{name}_in_function", build, None, X, truth, keys=keys)
            forward, gradient = make(*SLOPES["sin"])
            build = custom(forward, gradient, tf.numpy_function, as_it_is)
            eager = {"build": {}, "modes": ["eager"]}
            yield Row(f"{name}_eager", build, None, X, truth, keys=eager)
            forward, gradient = make(*SLOPES["sin"])
            of_functions = {
                "gradient": {"numpy": "of_a_row:pull"},
                "outputs": {"y": {"dtype": "float64", "shape": [2, 3]}},
                "binding": "py_func",
                "modes": ["graph"],
            }
            functions = {"pull": gradient}
            yield Row(f"{name}_bound", forward, None, X, truth, keys=of_functions, functions=functions)


def _written() -> Iterator[Row]:
    """Yield functions that write to the arrays that they are given, which may be what others read."""

    def into_upstream(u: Any, x: Any) -> Any:
        u *= np.cos(x)
        return u

    def into_input(x: Any) -> Any:
        x[:] = np.sin(x)
        return x

    def into_copies(u: Any, x: Any) -> Any:
        return into_upstream(u.copy(), x)

    def cosine(u: Any, x: Any) -> Any:
        return u * np.cos(x)

    for name, forward, gradient, truth in (
        ("into_upstream", np.sin, into_upstream, "wrong"),
        ("into_input", into_input, cosine, "wrong"),
        ("into_copies", lambda x: into_input(x.copy()), into_copies, "right"),
    ):
        for place, around in (("", as_it_is), ("_in_function", in_function)):
            build = custom(forward, gradient, tf.numpy_function, around)
            yield Row(f"{name}{place}", build, None, X, truth, keys={"build": {}, "modes": ["graph"]})


ROWS = marked((*_rows(), *_written()), "checked_cache_stateless", "into_upstream_in_function")
