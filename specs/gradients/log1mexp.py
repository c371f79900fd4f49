"""log(1 - exp(-x)) for positive x, the log-probability of what doesn't happen, to full precision."""

import numpy as np
import tensorflow as tf


@tf.custom_gradient
def log1mexp(x):
    """Return log(1 - exp(-x)) for x > 0, exact near 0 (where it is log x) and far out (where it is -exp(-x)).

    The gradient is by hand, since TensorFlow's own of the two branches is NaN near 0: the branch that isn't
    taken divides by zero there, and `tf.where` multiplies what it gives by zero. It doesn't overflow for
    large x either, as 1 / expm1(x) would where it is differentiated again.

    References:
        Mächler, "Accurately computing log(1 - exp(-|a|))", 2012.
    """

    def gradient(upstream):
        return upstream * tf.exp(-x) / -tf.math.expm1(-x)

    near = tf.math.log(-tf.math.expm1(-x))
    far = tf.math.log1p(-tf.exp(-x))
    return tf.where(x < tf.constant(np.log(2), x.dtype), near, far), gradient
