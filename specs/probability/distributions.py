"""Every method of a distribution, and of a bijector, of TensorFlow Probability as one function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import composites
import tensorflow as tf
import tensorflow_probability as tfp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SEED = (3, 14)
# What comes together: if one of a line is defined, all are.
METHODS = {
    "density": ("log_prob", "prob"),
    "cdf": ("cdf", "log_cdf", "survival_function", "log_survival_function"),
    "quantile": ("quantile",),
    "entropy": ("entropy",),
    "mean": ("mean",),
    "variance": ("variance", "stddev"),
    "covariance": ("covariance",),
    "mode": ("mode",),
    "sample": ("sample",),
}


def methods(
    distribution: str,
    without: Iterable[str] = (),
    omit: Mapping[str, str] | None = None,
    **constants: Any,
) -> Callable[..., dict[str, tf.Tensor]]:
    """Return a distribution's methods as a function of the value, the probability and the parameters.

    Args:
        distribution: name of the class.
        without: methods that it doesn't have, by the names in METHODS.
        omit: methods that are left out, each with the reason.
        constants: further arguments of the constructor.
    """
    made = composites.DISTRIBUTIONS.get(distribution) or getattr(tfp.distributions, distribution)
    if "dtype" in constants:
        constants["dtype"] = tf.as_dtype(constants["dtype"])

    def called(**inputs: Any) -> dict[str, tf.Tensor]:
        arguments = {"value": inputs.pop("value", None), "p": inputs.pop("p", tf.constant(0.5, tf.float64))}
        return results(made(**inputs, **constants), arguments, without, omit or {})

    return called


def results(
    made: Any, arguments: Mapping[str, Any], without: Iterable[str], omit: Mapping[str, str]
) -> dict[str, tf.Tensor]:
    """Return what each method of a distribution gives, by its name."""
    found = {}
    for group, names in METHODS.items():
        for name in names:
            if {group, name} & set(omit) or (group == "covariance" and not made.event_shape.rank):
                continue
            if group == "sample" and made.reparameterization_type != tfp.distributions.FULLY_REPARAMETERIZED:
                continue
            try:
                found[name] = _call(made, name, arguments)
            except NotImplementedError:
                if group in without:
                    continue
                raise
            if group in without:
                raise AssertionError(f"{made.name} has {name}: take {group} out of `without`")
    return found


def _call(made: Any, name: str, arguments: Mapping[str, Any]) -> tf.Tensor:
    if name == "sample":
        return made.sample(seed=tf.constant(SEED))
    if name in METHODS["density"] + METHODS["cdf"]:
        return getattr(made, name)(arguments["value"])
    if name == "quantile":
        return made.quantile(arguments["p"])
    return getattr(made, name)()
