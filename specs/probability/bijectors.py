"""Every method of a bijector of TensorFlow Probability as one function of its points and parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf
import tensorflow_probability as tfp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

tfb = tfp.bijectors


def _spline(widths: tf.Tensor, heights: tf.Tensor, slopes: tf.Tensor) -> Any:
    return tfb.RationalQuadraticSpline(
        2.0 * tf.nn.softmax(widths), 2.0 * tf.nn.softmax(heights), tf.nn.softplus(slopes)
    )


def _shifted(shift: tf.Tensor) -> Callable[..., Any]:
    return lambda x, *_, **__: (shift * tf.reduce_sum(tf.tanh(x), -1, keepdims=True), tf.ones_like(x) * shift)


# What takes more than tensors, by the name of its class: its tensors by the names of the inputs of its spec.
MADE = {
    "Blockwise": lambda shift, scale: tfb.Blockwise([tfb.Shift(shift), tfb.Scale(scale)], [1, 1]),
    "Chain": lambda shift, scale: tfb.Chain([tfb.Softplus(), tfb.Shift(shift), tfb.Scale(scale)]),
    "FillScaleTriL": lambda: tfb.FillScaleTriL(diag_bijector=tfb.Exp(), diag_shift=None),
    "Inline": lambda scale: tfb.Inline(
        forward_fn=lambda x: scale * x,
        inverse_fn=lambda y: y / scale,
        inverse_log_det_jacobian_fn=lambda _: -tf.math.log(scale),
        forward_min_event_ndims=0,
    ),
    "Invert": lambda scale: tfb.Invert(tfb.Scale(scale)),
    "MaskedAutoregressiveFlow": lambda shift: tfb.MaskedAutoregressiveFlow(
        lambda x: (shift * tf.stack([tf.zeros_like(x[0]), tf.tanh(x[0])]), 0.3 * shift * tf.ones_like(x))
    ),
    "ScaleMatvecLU": lambda lower_upper: tfb.ScaleMatvecLU(lower_upper, permutation=[1, 0]),
    "Permute": lambda: tfb.Permute([1, 0]),
    "RationalQuadraticSpline": _spline,
    "RealNVP": lambda shift: tfb.RealNVP(num_masked=1, shift_and_log_scale_fn=_shifted(shift)),
    "Reshape": lambda: tfb.Reshape([2, 1], [2]),
    "ScaleMatvecLinearOperator": lambda scale: tfb.ScaleMatvecLinearOperator(
        tf.linalg.LinearOperatorFullMatrix(scale)
    ),
    "TransformDiagonal": lambda: tfb.TransformDiagonal(tfb.Exp()),
    "Transpose": lambda: tfb.Transpose([1, 0]),
}


def methods(bijector: str, *, without: Iterable[str] = (), **constants: Any) -> Callable[..., dict[str, Any]]:
    """Return a bijector's forward, inverse and log-determinants as a function of `x`, `y` and the parameters.

    Args:
        bijector: name of the class.
        without: methods that it doesn't have.
        constants: further arguments of the constructor.
    """
    make = MADE.get(bijector) or getattr(tfb, bijector)

    def called(x: tf.Tensor, y: tf.Tensor, **parameters: tf.Tensor) -> dict[str, Any]:
        made = make(**parameters, **constants)
        of_x, of_y = made.forward_min_event_ndims, made.inverse_min_event_ndims
        found = {
            "forward": lambda: made.forward(x),
            "inverse": lambda: made.inverse(y),
            "forward_log_det_jacobian": lambda: made.forward_log_det_jacobian(x, of_x),
            "inverse_log_det_jacobian": lambda: made.inverse_log_det_jacobian(y, of_y),
        }
        return {name: method() for name, method in found.items() if name not in without}

    return called
