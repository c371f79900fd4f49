"""Call `tf.gradients`, and say in the user's words what went wrong in a gradient function."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.checking.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.tensorflow_backend import frames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_COUNT_CLASH = ("gradients generated for", "custom_gradient function expected to return")
_SHAPE_CLASH = "Incompatible shapes between op input and calculated input gradient"


def gradients_of(
    outputs: list[Any], inputs: Sequence[Any], upstreams: list[Any], *, stops: Sequence[Any] = ()
) -> list[Any]:
    """Call `tf.gradients`, and say what went wrong in the user's words; it goes no further than `stops`."""
    if not inputs:
        return []
    with in_users_words(inputs):
        return list(
            tf.compat.v1.gradients(
                outputs, list(inputs), grad_ys=upstreams, stop_gradients=list(stops) or None
            )
        )


@contextlib.contextmanager
def in_users_words(inputs: Sequence[Any]) -> Iterator[None]:
    """Say what goes wrong in a gradient function that is called within."""
    try:
        yield
    except (CaseFailedError, GradientFormError, CaseSkippedError):
        raise
    except ValueError as error:
        if _SHAPE_CLASH in str(error):
            raise _shape_fault(error, inputs) from error
        raise CaseFailedError(
            "gradient_count" if any(words in str(error) for words in _COUNT_CLASH) else "gradient",
            f"building the gradient raised {frames.first_line(error)}",
            frames.user_frames(error),
        ) from error
    except AttributeError as error:
        if "'name'" in str(error) or "'op'" in str(error) or "'dtype'" in str(error):
            raise CaseFailedError(
                "gradient",
                "a gradient function returned something that is no tensor (an ndarray or a Python number): "
                f"{frames.first_line(error)}. Return a tensor, such as tf.constant(...), or None.",
                frames.user_frames(error),
            ) from error
        raise CaseFailedError(
            "gradient", f"building the gradient raised {frames.first_line(error)}", frames.user_frames(error)
        ) from error
    except LookupError as error:
        raise CaseFailedError(
            "gradient",
            f"{str(error).strip(chr(39))} Register one with tf.RegisterGradient, or give the spec a "
            "'gradient'.",
            frames.user_frames(error),
        ) from error
    except Exception as error:
        raise CaseFailedError(
            "gradient", f"building the gradient raised {frames.first_line(error)}", frames.user_frames(error)
        ) from error


def _shape_fault(error: ValueError, inputs: Sequence[Any]) -> GradientFormError:
    """Turn TensorFlow's shape clash into a finding; it names the op and the op's own input number."""
    text = str(error)
    guilty: tuple[int, ...] = ()
    if len(inputs) == 1:
        guilty = (0,)
    detail = text[text.index(_SHAPE_CLASH) :]
    return GradientFormError(guilty, f"a gradient has another shape than its input: {detail}")


def dense(gradient: Any, tensor: Any) -> Any:
    """Add up IndexedSlices into the input's shape; their own `dense_shape` may be missing."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows = tf.shape(tensor)[0]
    dense = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, rows)
    return tf.ensure_shape(dense, tensor.shape)
