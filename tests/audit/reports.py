"""The ten reports for the trackers: the causes, what is asked of a maintainer, and mends that were tried.

`causes.py` writes docs/upstream.md from this and from the causes' pages; `test_reports.py` tries each mend.
"""

from __future__ import annotations

from typing import NamedTuple


class Request(NamedTuple):
    """What a tracker is asked for.

    Args:
        cause: stem of the cause's page.
        title: as the issue's.
        ask: what is to be done, in a line.
        target: the function to mend, `module:qualified name`; empty if no mend of a line or two was found.
        old: the line at fault, as it stands.
        new: what replaces it.
    """

    cause: str
    title: str
    ask: str
    target: str = ""
    old: str = ""
    new: str = ""


REQUESTS = (
    Request(
        "moments_second_order",
        "Second derivatives through tf.nn.moments (layer, batch and group normalization) are wrong",
        "Drop the stop_gradient around the mean.",
        "tensorflow.python.ops.nn_impl:moments",
        "array_ops.stop_gradient(mean)",
        "mean",
    ),
    Request(
        "softmax_cross_entropy_labels",
        "softmax_cross_entropy_with_logits: the gradient for the logits doesn't depend on the labels",
        "Give the gradient of the gradient for the labels, too: minus the upstream.",
    ),
    Request(
        "weighted_cross_entropy_zero",
        "weighted_cross_entropy_with_logits: the gradient at a logit of 0 forgets the positive weight",
        "Write the loss with softplus, as its docstring does.",
        "tensorflow.python.ops.nn_impl:weighted_cross_entropy_with_logits_v2",
        "log_weight * (math_ops.log1p(math_ops.exp(-math_ops.abs(logits))) +\n"
        "                      nn_ops.relu(-logits)),  # pylint: disable=invalid-unary-operand-type",
        "log_weight * math_ops.softplus(-logits),",
    ),
    Request(
        "truncated_normal",
        "stateless_parameterized_truncated_normal: gradients of means and stddevs ignore the bounds",
        "Take the implicit derivative, -(dF/dp) / f, with the truncated CDF.",
    ),
    Request(
        "eigh_tridiagonal",
        "tf.linalg.eigh_tridiagonal: the gradient of eigenvalues isn't theirs",
        "Register a gradient: v[i]^2 for alpha and 2 v[i] v[i+1] for beta.",
    ),
    Request(
        "det_complex",
        "tf.linalg.det of complex matrices: the gradient isn't conjugated",
        "Conjugate the determinant in _MatrixDeterminantGrad.",
    ),
    Request(
        "sparse_concat",
        "tf.sparse.concat has no gradient and says nothing",
        "Split the upstream among the inputs, or raise LookupError.",
    ),
    Request(
        "inverse_gaussian",
        "InverseGaussian.sample: the gradients of loc and concentration change places",
        "Exchange two names.",
        "tensorflow_probability.python.distributions.inverse_gaussian:_random_inverse_gaussian_bwd",
        "return grad_concentration, grad_loc, None  # seed=None",
        "return grad_loc, grad_concentration, None  # seed=None",
    ),
    Request(
        "betainc_whole_parameter",
        "tfp.math.betainc: derivatives by a parameter that is a whole number are wrong",
        "End the series of the derivative by its own terms, not by those of the value.",
    ),
    Request(
        "celu_zero",
        "keras.ops.celu: the gradient at 0 is 2 with the TensorFlow backend",
        "Choose between the branches instead of adding them.",
        "keras.src.backend.tensorflow.nn:celu",
        "return tf.maximum(x, 0.0) + alpha * tf.math.expm1(\n        tf.minimum(x, 0.0) / alpha\n    )",
        "return tf.where(x > 0.0, x, alpha * tf.math.expm1(tf.minimum(x, 0.0) / alpha))",
    ),
)
