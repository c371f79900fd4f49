"""Functions around op types that debuggers put into a graph."""

import itertools

import tensorflow as tf
from tensorflow.python.debug.lib import debug_gradients

raw, v1 = tf.raw_ops, tf.compat.v1
_NUMBERS = itertools.count()


@tf.RegisterGradient("AuditAssignDebugged")
def _assign_gradient(_, upstream):
    """Let the gradient of what is assigned to a variable be that of the variable: Assign has none."""
    return None, upstream


def watched(x):
    """Have a GradientsDebugger watch the gradient of a tensor."""
    return tf.sin(_watched(x * x))


def watched_reference(x):
    """Have a GradientsDebugger watch the gradient of a reference to a variable that holds `x`."""
    # Variables of one name are one variable, whatever their graphs.
    variable = raw.VariableV2(shape=x.shape, dtype=x.dtype, shared_name=f"debugging_{next(_NUMBERS)}")
    with v1.get_default_graph().gradient_override_map({"Assign": "AuditAssignDebugged"}):
        return tf.sin(_watched(raw.Assign(ref=variable, value=x * x)))


def _watched(x):
    return debug_gradients.GradientsDebugger().identify_gradient(x)
