"""Loops and branches of the dataflow ops of TensorFlow 1: Enter, Switch and the like; those of references.

They come up in a graph without control flow v2 alone. Each function makes one of the graph that is built.
"""

import itertools

import control_flow_ops
import tensorflow as tf
from mixed_outputs import mixed

raw, v1 = tf.raw_ops, tf.compat.v1
_NUMBERS = itertools.count()
# As tf.compat.v1.disable_v2_behavior does. A WhileContext compares tensors, by which it means whether they
# are the same one; otherwise it would make an op of that, in whose making it compares tensors.
v1.disable_control_flow_v2()
v1.disable_tensor_equality()


def _leave_control_flow_v2():
    # A function's graph has control flow v2 whatever is disabled, unless it is of the legacy kind, which
    # TensorFlow knows by this attribute.
    v1.get_default_graph()._captured = True  # noqa: SLF001 (no public way)


def _of_tensorflow_1(function):
    @tf.autograph.experimental.do_not_convert
    def call(*args, **keywords):
        _leave_control_flow_v2()
        return function(*args, **keywords)

    return call


loop = _of_tensorflow_1(control_flow_ops.loop)
loop_of_two = _of_tensorflow_1(control_flow_ops.loop_of_two)
loop_in_a_loop = _of_tensorflow_1(control_flow_ops.loop_in_a_loop)
loop_with_a_branch = _of_tensorflow_1(control_flow_ops.loop_with_a_branch)
loop_that_gathers = _of_tensorflow_1(control_flow_ops.loop_that_gathers)
loop_until = _of_tensorflow_1(control_flow_ops.loop_until)
branch = _of_tensorflow_1(control_flow_ops.branch)
branch_that_ignores = _of_tensorflow_1(control_flow_ops.branch_that_ignores)
branch_that_gathers = _of_tensorflow_1(control_flow_ops.branch_that_gathers)
branch_in_a_branch = _of_tensorflow_1(control_flow_ops.branch_in_a_branch)
branch_of_two = _of_tensorflow_1(control_flow_ops.branch_of_two)


@_of_tensorflow_1
def switched(x, u, pick):
    """Send tensors one of two ways by raw ops, outside of any branch, and merge the ways again."""
    off, _ = raw.Switch(data=x, pred=pick)
    _, on = raw.Switch(data=u, pred=pick)
    merged, _ = raw.Merge(inputs=[tf.sin(off), on * on])
    return mixed(merged)


# References.


@tf.RegisterGradient("AuditAssign")
def _assign_gradient(_, upstream):
    """Let the gradient of what is assigned to a variable be that of the variable: Assign has none."""
    return None, upstream


def _reference(x):
    """Return a reference to a variable that holds `x`."""
    # Variables of one name are one variable, whatever their graphs.
    variable = raw.VariableV2(shape=x.shape, dtype=x.dtype, shared_name=f"dataflow_{next(_NUMBERS)}")
    with v1.get_default_graph().gradient_override_map({"Assign": "AuditAssign"}):
        return raw.Assign(ref=variable, value=x)


@_of_tensorflow_1
def reference_loop(x, u, n):
    """Go `n` rounds with a reference that goes along, and is added to what moves."""
    _, reference, y = v1.while_loop(
        lambda i, *_: i < n,
        lambda i, reference, y: (i + 1, raw.RefIdentity(input=reference), tf.sin(y) + reference),
        (tf.constant(0), _reference(x), u),
    )
    return mixed(reference * y)


@_of_tensorflow_1
def reference_branch(x, u, pick):
    """Send a reference one of two ways, and merge the ways again."""
    off, on = raw.RefSwitch(data=_reference(x), pred=pick)
    merged, _ = raw.RefMerge(inputs=[off, on])
    return mixed(tf.sin(merged) * u)


@_of_tensorflow_1
def reference_in_a_branch(x, u, pick):
    """Take one of two branches, each of which reads a reference."""
    reference = _reference(x)
    return mixed(v1.cond(pick, lambda: reference * u, lambda: tf.sin(reference)))
