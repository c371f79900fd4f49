"""The implicit reparameterisation of a sampler: the derivative that its distribution's CDF gives a sample.

A sample z for parameters p keeps its quantile as p moves: F(z; p) doesn't change. So dz/dp = -(dF/dp) / f,
where f is the density at z (Figurnov and others, 2018). This doesn't depend on the sampler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def implicit_sample(
    sampler: Callable[..., list[Any]], distribution: Callable[[Sequence[Any]], Any]
) -> Callable[..., list[Any]]:
    """Return a function of the parameters with the values of a sampler and the derivative of its CDF.

    The argument of a `stop_gradient` is held at the base point, as in every reference: one Newton step from
    the sample there is right to first order.

    Args:
        sampler: the forward, of flat tensors; its one output is the sample.
        distribution: makes an object with the methods `cdf` and `prob` from flat tensors.
    """

    def call(*tensors: Any) -> list[Any]:
        samples = sampler(*tensors)
        if len(samples) != 1:
            raise CaseFailedError(
                "outputs",
                f"implicit: the forward must return one sample, but returned {len(samples)} outputs.",
            )
        made = distribution(tensors)
        missing = [name for name in ("cdf", "prob") if not callable(getattr(made, name, None))]
        if missing:
            raise CaseFailedError(
                "reference",
                f"implicit: the reference must make a distribution with cdf and prob, but made a "
                f"{type(made).__name__} without {' and '.join(missing)}.",
            )
        sample = tf.stop_gradient(samples[0])
        place = made.cdf(sample)
        return [sample - (place - tf.stop_gradient(place)) / tf.stop_gradient(made.prob(sample))]

    return call
