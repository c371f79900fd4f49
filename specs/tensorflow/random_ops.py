"""What the gradients of samplers are meant to be: the sample's quantile stays, as the parameters move.

A sampler that rejects has no derivative of its own to speak of; TensorFlow gives it that of the inverse of
the distribution function at the sample's quantile (Figurnov et al., Implicit Reparameterization Gradients,
2018).
`stop_gradient` holds the sample and its quantile.
"""

import tensorflow as tf

NEWTON_STEPS = 4


def gamma_quantile(shape, seed, alpha):
    """Return the samples of StatelessRandomGammaV2, with alpha's effect by quantile."""
    return _gamma_at(alpha, tf.raw_ops.StatelessRandomGammaV2(shape=shape, seed=seed, alpha=alpha))


def gamma_quantile_of_key(shape, key, counter, alg, alpha):
    """Return the samples of StatelessRandomGammaV3, with alpha's effect by quantile."""
    sample = tf.raw_ops.StatelessRandomGammaV3(shape=shape, key=key, counter=counter, alg=alg, alpha=alpha)
    return _gamma_at(alpha, sample)


def _gamma_at(alpha, sample):
    sample = tf.stop_gradient(tf.cast(sample, alpha.dtype))
    quantile = tf.stop_gradient(tf.math.igamma(alpha, sample))
    x = sample
    for _ in range(NEWTON_STEPS):
        density = tf.exp((alpha - 1) * tf.math.log(x) - x - tf.math.lgamma(alpha))
        x -= (tf.math.igamma(alpha, x) - quantile) / density
    return x


def truncated_normal_quantile(shape, seed, means, stddevs, minvals, maxvals):  # noqa: PLR0913, PLR0917 (the op's)
    """Return StatelessParameterizedTruncatedNormal's samples, with each parameter's effect by quantile."""
    sample = tf.stop_gradient(
        tf.raw_ops.StatelessParameterizedTruncatedNormal(
            shape=shape, seed=seed, means=means, stddevs=stddevs, minvals=minvals, maxvals=maxvals
        )
    )
    low, high = (_normal_cdf((bound - means) / stddevs) for bound in (minvals, maxvals))
    quantile = tf.stop_gradient((_normal_cdf((sample - means) / stddevs) - low) / (high - low))
    return means + stddevs * tf.math.ndtri(low + quantile * (high - low))


def _normal_cdf(x):
    return 0.5 * tf.math.erfc(-x / tf.sqrt(tf.constant(2.0, x.dtype)))


def gamma_and_its_quantile(shape, alpha):
    """Return alpha**2 and the quantile of a sample of RandomGamma.

    Whatever the draw, the quantile doesn't move with alpha, and the sum's derivative is 2 alpha.
    """
    sample = tf.raw_ops.RandomGamma(shape=shape, alpha=alpha, seed=1, seed2=2)
    return alpha**2 + tf.math.igamma(alpha, sample)


def squared(shape, alpha):
    """Return alpha**2 in the shape of the samples."""
    return tf.broadcast_to(alpha**2, tf.concat([shape, tf.shape(alpha)], 0))
