"""Gradients of wrong shape, for inputs, captured variables, Keras weights and `variables=`."""

from __future__ import annotations

import keras
import tensorflow as tf

from tests.support.row import Row, marked

# What a gradient function returns for a bias of shape [3] of an output of shape [4, 3].
FORMS = {
    "right": lambda u: tf.reduce_sum(u, 0),
    "not_summed": lambda u: u,
    "transposed": lambda u: tf.transpose(u),  # noqa: PLW0108 (the table names what each does)
    "keepdims": lambda u: tf.reduce_sum(u, 0, keepdims=True),
    "scalar": tf.reduce_sum,
}
MODES = ("graph", "dynamic", "eager", "xla")
BIAS = [0.25, -0.5, 0.75]


def as_argument(form):
    """The bias is an argument of the custom gradient."""

    @tf.custom_gradient
    def add(x, bias):
        return x + bias, lambda u: (u, form(u))

    return add


def as_captured(form):
    """The bias is captured; its gradient is among those for `variables=`."""

    def add(x, bias):
        @tf.custom_gradient
        def own(x):
            def gradient(u, variables=None):
                return u, [form(u) for _ in variables]

            return x + bias, gradient

        return own(x)

    return add


KINDS = {"argument": as_argument, "variables=": as_captured}


def from_variable(kind, form, *, beside):
    def make():
        bias = tf.Variable(BIAS, dtype=tf.float64)
        add = KINDS[kind](FORMS[form])
        return (lambda x: add(x, bias) + tf.sin(x) * bias) if beside else (lambda x: add(x, bias))

    return make


class Biased(keras.layers.Layer):
    """A layer whose bias has a gradient of its own."""

    def __init__(self, kind, form, beside):
        super().__init__(dtype="float64")
        self.add, self.beside = KINDS[kind](FORMS[form]), beside

    def build(self, shape):
        self.bias = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        result = self.add(x, self.bias.value)
        return result + tf.sin(x) * self.bias if self.beside else result


def from_input(form, *, beside):
    add = as_argument(FORMS[form])
    return (lambda x, bias: add(x, bias) + tf.sin(x) * bias) if beside else add


def _rows():
    x = {"x": {"shape": [4, 3]}}
    with_bias = x | {"bias": {"shape": [3]}}
    for form in FORMS:
        truth = "right" if form == "right" else "wrong"
        for beside in (False, True):
            where = "beside" if beside else "alone"
            for mode in MODES if form in {"right", "not_summed"} else ("graph", "eager"):
                tail = f"{form}_{where}_{mode}"
                modes = {"modes": [mode]}
                yield Row(
                    f"input_{tail}", from_input(form, beside=beside), None, with_bias, truth, keys=modes
                )
                for kind in KINDS:
                    keys = {"build": {}, "variables": True, **modes}
                    forward = from_variable(kind, form, beside=beside)
                    yield Row(f"{kind}_{tail}", forward, None, x, truth, keys=keys)
            for kind in KINDS:
                keys = {"build": {}, "variables": True}

                def layer(kind=kind, form=form, beside=beside):
                    return Biased(kind, form, beside)

                yield Row(f"keras_{kind}_{form}_{where}", layer, None, x, truth, keys=keys)
                if form != "right":
                    forward = from_variable(kind, form, beside=beside)
                    keys = {"build": {}}
                    yield Row(f"{kind}_{form}_{where}_no_input", forward, None, x, "not green", keys=keys)
        if form != "right":
            for kind in KINDS:
                forward = from_variable(kind, form, beside=False)
                keys = {"build": {}, "variables": True, "pairs": {"dy/dVariable*": {"expect": "zero"}}}
                yield Row(f"{kind}_{form}_said_zero", forward, None, x, "not green", keys=keys)


def slices(rows):
    """A lookup whose gradient says that its table has another number of rows."""

    @tf.custom_gradient
    def look_up(table):
        chosen = tf.constant([0, 2])

        def gradient(u):
            return tf.IndexedSlices(u, chosen, None if rows is None else tf.constant([rows, 2]))

        return tf.gather(table, chosen), gradient

    return look_up


def slices_of_variable(rows, *, beside):
    def make():
        table = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=tf.float64)
        look_up = slices(rows)
        if beside:
            return lambda x: x * look_up(table) + tf.sin(x) * table[0]
        return lambda x: x * look_up(table)

    return make


def _slices_rows():
    for rows, truth in ((None, "right"), (3, "right"), (2, "wrong"), (4, "wrong"), (30, "wrong")):
        # With unknown dimensions nothing says which number of rows is the right one.
        for mode in ("graph", "dynamic", "eager") if truth == "right" else ("graph", "eager"):
            table = {"table": {"shape": [3, 2]}}
            yield Row(f"slices_{rows}_{mode}", slices(rows), None, table, truth, keys={"modes": [mode]})
        x = {"x": {"shape": [2, 2]}}
        # TensorFlow can't add slices of unknown number to a dense gradient.
        for beside in (False, True) if rows else (False,):
            keys = {"build": {}, "variables": True}
            where = "beside" if beside else "alone"
            forward = slices_of_variable(rows, beside=beside)
            yield Row(f"slices_of_variable_{rows}_{where}", forward, None, x, truth, keys=keys)


ROWS = marked(
    (*_rows(), *_slices_rows()),
    "argument_not_summed_alone_dynamic",
    "argument_not_summed_alone_eager",
    "argument_not_summed_said_zero",
    "keras_argument_right_alone",
    "variables=_not_summed_alone_no_input",
    "variables=_right_alone_xla",
)
