"""Gradient reversal: the identity on the way forward, a change of sign on the way back."""

import tensorflow as tf


def reverse(features, *, strength):
    """Return the features as they are; their gradient comes back times `-strength`.

    What is before it learns to make the loss behind it larger: features by which the classifier behind can't
    tell domains apart.

    References:
        Ganin and Lempitsky, "Unsupervised domain adaptation by backpropagation", 2015.
    """

    @tf.custom_gradient
    def reversal(tensor):
        return tf.identity(tensor), lambda upstream: -strength * upstream

    return reversal(features)


def reversed_identity(features, *, strength):
    """Return what has the gradient of `reverse`: its reference."""
    return -strength * features


def _domain_loss(features, weights, domains):
    logits = tf.linalg.matvec(features, weights)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=domains, logits=logits))


def adversarial_loss(features, weights, domains, *, strength):
    """Return the domain classifier's loss behind a gradient reversal.

    Args:
        features: shape (examples, features).
        weights: of the classifier, shape (features,).
        domains: 0 or 1 for each example.
        strength: how strongly the features unlearn.
    """
    return _domain_loss(reverse(features, strength=strength), weights, domains)


def adversarial_reference(features, weights, domains, *, strength):
    """Return what has the gradients of `adversarial_loss`: each of the two sees the other as a constant."""
    to_weights = _domain_loss(tf.stop_gradient(features), weights, domains)
    to_features = _domain_loss(features, tf.stop_gradient(weights), domains)
    return to_weights - strength * to_features
