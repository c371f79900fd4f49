"""Code of TensorFlow 1: eager execution is off, and each op has its gradient by one of TensorFlow 1's ways.

Each is there twice: with its gradient, and with one that is off by a half (`wrong_...`).
"""

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import function

tf.disable_v2_behavior()

SCALES = {"right": 1.0, "wrong": 1.5}
GRAPH = tf.get_default_graph()
SESSION = tf.Session()
WEIGHTS = tf.get_variable("weights", [3], initializer=tf.constant_initializer([0.5, -1.0, 2.0]))
SCALED = tf.Variable([1.0, 2.0, 3.0]) * tf.constant(2.0)
SESSION.run(tf.global_variables_initializer())
SESSION.run(tf.assign(WEIGHTS, [1.5, -2.0, 0.25]))  # as a checkpoint that is restored
FED = tf.placeholder(tf.float32, [None])
EXPONENTIAL = tf.exp(FED)

for _word, _scale in SCALES.items():

    @tf.RegisterGradient(f"SquareOf{_word}")
    def _square_grad(op, grad, scale=_scale):
        assert op.inputs[0].get_shape().ndims is not None
        return scale * 2.0 * grad * op.inputs[0]


def _override(word):
    def by_the_graph_it_is_traced_in(x):
        with tf.get_default_graph().gradient_override_map({"Square": f"SquareOf{word}"}):
            return tf.square(x)

    def by_the_modules_graph(x):
        with GRAPH.gradient_override_map({"Square": f"SquareOf{word}"}):
            return tf.square(x)

    def in_the_modules_graph(x):
        with GRAPH.as_default(), GRAPH.gradient_override_map({"Square": f"SquareOf{word}"}):
            return tf.square(x)

    def in_a_loop(x):
        with tf.get_default_graph().gradient_override_map({"Square": f"SquareOf{word}"}):
            return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, tf.square(y)), [0, x])[1]

    def in_a_branch(x):
        with tf.get_default_graph().gradient_override_map({"Square": f"SquareOf{word}"}):
            return tf.cond(tf.reduce_sum(x) < 1e6, lambda: tf.square(x), lambda: x)

    def in_map_fn(x):
        with tf.get_default_graph().gradient_override_map({"Square": f"SquareOf{word}"}):
            return tf.map_fn(tf.square, x)

    return [
        by_the_graph_it_is_traced_in,
        by_the_modules_graph,
        in_the_modules_graph,
        in_a_loop,
        in_a_branch,
        in_map_fn,
    ]


def _numpy(word):
    scale = SCALES[word]

    def py_func(x):
        name = "PyFunc" + str(np.random.randint(0, 1e8))  # noqa: NPY002 (as published)
        tf.RegisterGradient(name)(lambda op, grad: scale * 3.0 * grad * op.inputs[0] ** 2)
        with tf.get_default_graph().gradient_override_map({"PyFunc": name}):
            y = tf.py_func(lambda value: value**3, [x], [tf.float32])[0]
        y.set_shape(x.shape)
        return y

    def py_func_gradient_too(x):
        name = "PyFunc" + str(np.random.randint(0, 1e8))  # noqa: NPY002 (as published)

        def gradient(op, grad):
            return tf.py_func(
                lambda value, flow: np.float32(scale * 3) * flow * value**2, [op.inputs[0], grad], tf.float32
            )

        tf.RegisterGradient(name)(gradient)
        with tf.get_default_graph().gradient_override_map({"PyFunc": name}):
            y = tf.py_func(lambda value: value**3, [x], [tf.float32])[0]
        y.set_shape(x.shape)
        return y

    return [py_func, py_func_gradient_too]


def _defun(word):
    scale = SCALES[word]

    @function.Defun(tf.float32, tf.float32, func_name=f"CubeGrad{word}")
    def gradient(x, flow):
        return scale * 3.0 * flow * x * x

    @function.Defun(tf.float32, grad_func=gradient, func_name=f"Cube{word}")
    def cube(x):
        return x * x * x

    def in_python(op, flow):
        return scale * 3.0 * flow * op.inputs[0] ** 2

    @function.Defun(tf.float32, python_grad_func=in_python, func_name=f"CubePython{word}")
    def cube_python(x):
        return x * x * x

    def defun(x):
        y = cube(x)
        y.set_shape(x.get_shape())
        return y

    def defun_python(x):
        y = cube_python(x)
        y.set_shape(x.get_shape())
        return y

    return [defun, defun_python]


def _custom(word):
    scale = SCALES[word]

    @tf.custom_gradient
    def square(x):
        return x * x, lambda grad: scale * 2.0 * x * grad

    def custom_gradient(x):
        return square(x)

    def by_a_dimension(x):
        n = x.shape[0].value
        return square(x) / n

    def memo_by_tensor(x):
        memo = {x: square(x)}
        return memo[x]

    def with_the_modules_variable(x):
        return square(x * WEIGHTS)

    def with_the_modules_tensor(x):
        return square(x) * SCALED

    def with_a_variable_of_its_own(x):
        with tf.variable_scope("own", reuse=tf.AUTO_REUSE):
            w = tf.get_variable("w", [3], initializer=tf.random_normal_initializer())
        return square(x * w)

    def with_a_drawn_variable(x):
        return square(x + tf.Variable(tf.truncated_normal([3])))

    return [
        custom_gradient,
        by_a_dimension,
        memo_by_tensor,
        with_the_modules_variable,
        with_the_modules_tensor,
        with_a_variable_of_its_own,
        with_a_drawn_variable,
    ]


for _word in SCALES:
    for _make in (_override, _numpy, _defun, _custom):
        for _function in _make(_word):
            globals()[f"{_word}_{_function.__name__}"] = _function


@function.Defun(tf.float32)
def without_gradient(x):
    return x * tf.sin(x)


def right_defun_without_gradient(x):
    y = without_gradient(x)
    y.set_shape(x.get_shape())
    return y


def in_session(x):
    """Evaluate in the session that the module opened."""
    return SESSION.run(EXPONENTIAL, {FED: x.ravel()}).reshape(x.shape)


def right_in_session_grad(op, grad):
    return grad * op.outputs[0]


def wrong_in_session_grad(op, grad):
    return 1.5 * grad * op.outputs[0]


def on_a_placeholder(x):
    return x * tf.reduce_sum(FED)
