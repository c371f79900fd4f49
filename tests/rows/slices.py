"""Gradients that are `IndexedSlices`: their own `dense_shape` must be the input's, in every mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tests.support.row import Row, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

X = {"x": {"shape": [4, 3]}}
MODES = ("graph", "eager", "dynamic")
# What the gradient for a table of shape [4, 3] claims.
CLAIMS: dict[str, tuple[str, Callable[[Any], Any] | None]] = {
    "none": ("right", None),
    "known": ("right", lambda _: tf.constant([4, 3])),
    "taken": ("right", tf.shape),
    "taken_wide": ("right", lambda x: tf.shape(x, out_type=tf.int64)),
    "more_rows": ("wrong", lambda _: tf.constant([5, 3])),
    "one_more_row": ("wrong", lambda x: tf.shape(x) + tf.constant([1, 0])),
    "fewer_rows": ("wrong", lambda x: tf.shape(x) - tf.constant([1, 0])),
    "more_columns": ("wrong", lambda x: tf.shape(x) + tf.constant([0, 1])),
    "fewer_columns": ("wrong", lambda _: tf.constant([4, 2])),
    "transposed": ("wrong", lambda x: tf.gather(tf.shape(x), [1, 0])),
    "one_column": ("wrong", lambda _: tf.constant([4, 1])),
    "one_more_axis": ("wrong", lambda _: tf.constant([4, 3, 1])),
    "flat": ("wrong", lambda x: tf.size(x)[tf.newaxis]),
}


def _doubled(claim: Callable[[Any], Any] | None) -> Any:
    """Twice the input, by slices for its rows in another order."""

    @tf.custom_gradient
    def call(x: Any) -> Any:
        def gradient(u: Any) -> Any:
            rows = tf.range(tf.shape(u)[0])[::-1]
            return tf.IndexedSlices(
                2.0 * tf.gather(u, rows), rows, dense_shape=None if claim is None else claim(x)
            )

        return 2.0 * x, gradient

    return call


def _alone(call: Any, x: Any) -> Any:
    return call(x)


def _beside(call: Any, x: Any) -> Any:
    return call(x) + tf.sin(x)


def _after(call: Any, x: Any) -> Any:
    return call(tf.sin(x))


WHERE = (_alone, _beside, _after)


def _rows() -> Iterator[Row]:
    for name, (truth, claim) in CLAIMS.items():
        for where in WHERE:
            for mode in MODES:

                def build(claim: Any = claim, where: Any = where) -> Any:
                    call = _doubled(claim)
                    return lambda x: where(call, x)

                # Before another op's gradient, TensorFlow itself raises, or needs a `dense_shape`.
                is_wrong = truth == "wrong" or claim is None
                told = "not green" if is_wrong and where is not _alone else truth
                keys = {"build": {}, "modes": [mode]}
                yield Row(f"{name}{where.__name__}_{mode}", build, None, X, told, keys=keys)


ROWS = marked(
    tuple(_rows()),
    "fewer_columns_after_eager",
    "fewer_rows_beside_graph",
    "more_columns_after_dynamic",
    "more_columns_alone_graph",
)
