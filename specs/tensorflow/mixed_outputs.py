"""What the audit's composites do to the outputs of the op under test: no derivative is zero by nature."""

import tensorflow as tf


def mixed(*outputs):
    """Multiply each output by the sum of all squares.

    The upstream of the op under test then depends on all inputs, and no second derivative by any two of them
    is zero.

    Args:
        outputs: tensors of one dtype.

    Returns:
        A tensor for each, in a list; the tensor itself where there is one.
    """
    total = tf.add_n([tf.reduce_sum(tf.square(output)) for output in outputs])
    products = [output * total for output in outputs]
    return products if len(products) > 1 else products[0]
