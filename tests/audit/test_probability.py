"""Each distribution, bijector and function of TensorFlow Probability has a spec, or an exception."""

from __future__ import annotations

import inspect
import sys

import pytest

from gradcheck_cli.running.session import start_tensorflow
from gradcheck_cli.spec.load import load
from tests.audit.audit_table import ROOT

start_tensorflow()
pytest.importorskip("tf_keras")
tfp = pytest.importorskip("tensorflow_probability")

SPECS = ROOT / "specs" / "probability"
LEARNED = "a network with weights of its own, whose gradients are those of its layers"
JOINT = "its densities are sums of its parts', each of which has a spec; it gives a structure, not a tensor"
# A reason -> the names that it is for.
EXCEPTED = {
    "distributions": {
        "the base class": "Distribution AutoCompositeTensorDistribution JointDistribution",
        JOINT: """
            JointDistributionCoroutine JointDistributionCoroutineAutoBatched JointDistributionNamed
            JointDistributionNamedAutoBatched JointDistributionSequential
            JointDistributionSequentialAutoBatched
        """,
        LEARNED: "PixelCNN",
        "takes no tensor but its value, and is constant in it": "FlatDirichlet SphericalUniform",
    },
    "bijectors": {
        "the base class": "Bijector AutoCompositeTensorBijector Composition",
        LEARNED: "AutoregressiveNetwork BatchNormalization Glow GlowDefaultExitNetwork GlowDefaultNetwork",
        "solves an ordinary differential equation, as tfp_ode does": "FFJORD",
        "gives a structure, not a tensor": "JointMap Restructure Split ScaleMatvecLinearOperatorBlock",
        "a former name of ScaleMatvecLU": "MatvecLU",
        "raises with NumPy 2.4: it calls reshape(newshape=...)": "Pad SoftmaxCentered UnitVector",
    },
    "math": {
        "calls functions that it is given, until they agree": """
            bracket_root find_root_chandrupatla find_root_secant secant_root minimize minimize_stateless
        """,
        "is given a function and differentiates it": "custom_gradient value_and_gradient",
        "a surrogate by its name: clips, and keeps the gradient": "clip_by_value_preserve_gradient",
        "describes what minimize traces": "MinimizeTraceableQuantities",
        "makes a sparse tensor of a dense one, as tf.sparse.from_dense does": "dense_to_sparse",
    },
}
OTHER_INPUTS = "takes other distributions or functions: composites.py makes it from tensors of other names"
# Parameters that aren't differentiated, by class; those of a class in composites.py have other names.
EXCEPTED_PARAMETERS = {
    "whole numbers, or a tolerance": {
        "Bates": "total_count",
        "BetaBinomial": "",
        "FiniteDiscrete": "rtol atol",
    },
    "another form of a parameter that is checked": {
        "Categorical": "probs",
        "ContinuousBernoulli": "probs",
        "ExpInverseGamma": "log_scale",
        "ExpRelaxedOneHotCategorical": "probs",
        "FiniteDiscrete": "probs",
        "Geometric": "probs",
        "OneHotCategorical": "probs",
        "ProbitBernoulli": "probs",
        "Bernoulli": "probs",
        "RelaxedBernoulli": "probs",
        "RelaxedOneHotCategorical": "probs",
        "Skellam": "log_rate1 log_rate2",
        "ZeroInflatedNegativeBinomial": "inflated_loc_probs probs",
    },
}


def offered(kind):
    """Return the public classes of distributions or bijectors, or the functions of tfp.math, by name."""
    module = getattr(tfp, kind)
    base = {"distributions": "Distribution", "bijectors": "Bijector"}.get(kind)
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    if base is None:
        return {name: value for name, value in found.items() if callable(value)}
    return {
        name: value
        for name, value in found.items()
        if inspect.isclass(value) and issubclass(value, getattr(module, base))
    } | {name: found[name] for name in EXCEPTED[kind].get(LEARNED, "").split()}


def cases():
    """Return the cases of the specs."""
    return load([SPECS]).cases


def checked(kind):
    """Return the names that specs have, with the inputs that each differentiates."""
    found = {}
    for case in cases():
        target, built = case.code.forward.target, case.code.build or {}
        name = built.get(kind.removesuffix("s"))
        if kind == "math":
            name = target.rpartition("math.")[2] if "tensorflow_probability:math." in target else None
            name = name or case.op.removeprefix("tfp_")
        if name is not None:
            found.setdefault(name, set()).update(argument.name for argument in case.arguments)
    return found


def excepted(kind):
    """Return the names that are excepted."""
    return {name for names in EXCEPTED[kind].values() for name in names.split()}


@pytest.mark.parametrize("kind", EXCEPTED)
def test_nothing_is_silently_left_out(kind):
    missing = offered(kind).keys() - checked(kind).keys() - excepted(kind)
    assert not missing, (
        f"TensorFlow Probability {tfp.__version__} has {', '.join(sorted(missing))} in tfp.{kind}: write a "
        "spec in specs/probability, or an exception above, with the reason."
    )


@pytest.mark.parametrize("kind", EXCEPTED)
def test_nothing_is_checked_and_excepted_or_gone(kind):
    assert not excepted(kind) & checked(kind).keys()
    assert not excepted(kind) - offered(kind).keys()


def test_each_parameter_of_a_distribution_is_an_input():
    sys.path.insert(0, str(SPECS))
    import composites  # beside the specs

    left_out = {}
    for one in EXCEPTED_PARAMETERS.values():
        for name, parameters in one.items():
            left_out[name] = left_out.get(name, set()) | set(parameters.split())
    missing = {}
    for name, inputs in checked("distributions").items():
        if name in composites.DISTRIBUTIONS or name == "PoissonLogNormalQuadratureCompound":
            continue
        known = set(getattr(tfp.distributions, name).parameter_properties())
        missing[name] = known - inputs - left_out.get(name, set())
    assert not {name: found for name, found in missing.items() if found}


def test_what_is_omitted_has_a_reason():
    for case in cases():
        for method, reason in ((case.code.build or {}).get("omit") or {}).items():
            assert len(reason.split()) > 1, f"{case.op}: say why {method} is left out"
