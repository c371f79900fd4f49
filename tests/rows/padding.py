"""Steps of sequences that are left out because they are zero, or another value that means "missing"."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from tests.support.row import Row, marked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Which steps of a sequence count, (batch, time), by their values, (batch, time, width).
COUNTED: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "any is not zero": lambda x: tf.reduce_any(x != 0, -1),
    "sum is not zero": lambda x: tf.reduce_sum(tf.abs(x), -1) > 0,
    "largest is not zero": lambda x: tf.reduce_max(tf.abs(x), -1) > 0,
    "not all are zero": lambda x: tf.logical_not(tf.reduce_all(tf.equal(x, 0), -1)),
    "the first is not zero": lambda x: x[..., 0] != 0,
    "any is positive": lambda x: tf.reduce_any(x > 0, -1),
    "none is minus one": lambda x: tf.reduce_all(x != -1, -1),
}


def _mean(counted, *, of_all: bool = False):
    """The mean of the steps that count; `of_all`: its gradient divides by the number of all steps."""

    @tf.custom_gradient
    def forward(x):
        mask = tf.cast(counted(x), x.dtype)[..., None]
        count = tf.maximum(tf.reduce_sum(mask, 1), 1)
        y = tf.tanh(tf.reduce_sum(x * mask, 1) / count)

        def gradient(upstream):
            slope = upstream * (1 - y * y) / (tf.cast(tf.shape(x)[1], x.dtype) if of_all else count)
            return slope[:, None] * mask

        return y, gradient

    return forward


def _attention(counted, *, of_all: bool = False):
    """A mean weighted by softmax of squares; `of_all`: its gradient weights steps that don't count, too."""

    @tf.custom_gradient
    def forward(x):
        squares, counts = tf.reduce_sum(x * x, -1), counted(x)
        masked = tf.where(counts, squares, tf.cast(-1e9, x.dtype))
        weights = tf.nn.softmax(masked)

        def gradient(upstream):
            used = tf.nn.softmax(squares) if of_all else weights
            to_weights = tf.reduce_sum(upstream[:, None] * x, -1)
            to_squares = used * (to_weights - tf.reduce_sum(used * to_weights, -1, keepdims=True))
            to_squares *= tf.cast(counts | of_all, x.dtype)
            return used[..., None] * upstream[:, None] + 2 * to_squares[..., None] * x

        return tf.reduce_sum(weights[..., None] * x, 1), gradient

    return forward


def _last(counted, *, of_all: bool = False):
    """The last step that counts, squared; `of_all`: its gradient goes to the last of all."""

    @tf.custom_gradient
    def forward(x):
        steps = tf.shape(x)[1]
        last = tf.reduce_max(tf.where(counted(x), tf.range(steps), 0), -1)
        chosen = tf.gather(x, last, axis=1, batch_dims=1)

        def gradient(upstream):
            places = tf.zeros_like(last) + steps - 1 if of_all else last
            return tf.one_hot(places, steps, dtype=x.dtype)[..., None] * (2 * chosen * upstream)[:, None]

        return chosen**2, gradient

    return forward


def _rows() -> Iterator[Row]:
    forms = {"mean": _mean, "attention": _attention, "last step": _last}
    for dtype in ("float64", "float32"):
        inputs = {"x": {"shape": [2, 3, 4], "dtype": dtype}}
        for form, make in forms.items():
            for words, counted in COUNTED.items():
                if form == "last step" and words == "any is positive":
                    continue  # the sample points show it
                name = f"{form}_where_{words}_{dtype}".replace(" ", "_")
                yield Row(name, make(counted), None, inputs, "right")
                yield Row(f"{name}_of_all", make(counted, of_all=True), None, inputs, "wrong")


ROWS = marked(
    _rows(),
    "mean_where_any_is_not_zero_float64",
    "mean_where_the_first_is_not_zero_float32",
    "attention_where_any_is_not_zero_float64_of_all",
)
