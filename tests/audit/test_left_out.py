"""What specs/probability leaves out is left out for the reason that it gives."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

from gradcheck_cli.running.session import start_tensorflow
from gradcheck_cli.spec.load import load
from gradcheck_cli.spec.values.draw_values import draw
from tests.audit.audit_table import ROOT

start_tensorflow()
pytest.importorskip("tf_keras")
tfp = pytest.importorskip("tensorflow_probability")
tf = pytest.importorskip("tensorflow")

SPECS = ROOT / "specs" / "probability"
sys.path.insert(0, str(SPECS))
import composites  # noqa: E402 (beside the specs)
import distributions  # noqa: E402

CASES = load([SPECS]).cases
NAMES = {case.op for case in CASES}
IMPLICIT = {case.op for case in CASES if case.reference and case.reference.implicit}
LEFT_OUT = {
    (case.op, group): (case, reason)
    for case in CASES
    for group, reason in ((case.code.build or {}).get("omit") or {}).items()
}
RANDOM = re.compile(r"Stateless(Random|Parameterized)|Random(Gamma|Standard|Uniform|Poisson)")


def made(case):
    """Return a function that gives a method's result for inputs by their names, and a case's inputs."""
    constants = {key: value for key, value in case.code.build.items() if key not in {"omit", "without"}}
    name = constants.pop("distribution")
    if "dtype" in constants:
        constants["dtype"] = tf.as_dtype(constants["dtype"])
    build = composites.DISTRIBUTIONS.get(name) or getattr(tfp.distributions, name)
    inputs = {tensor.name: draw(case, tensor, 0) for tensor in case.tensors}

    def called(method, **inputs):
        tensors = {name: tf.constant(x) for name, x in inputs.items()}
        arguments = {"value": tensors.pop("value", None), "p": tensors.pop("p", tf.constant(0.5, tf.float64))}
        distribution = build(**tensors, **constants)
        return distributions._call(distribution, method, arguments) if method else distribution

    return called, inputs


def distribution_of(case):
    called, inputs = made(case)
    return called(None, **inputs)


def results(case, group, by=0.0):
    """Return what the methods of a group give, with all inputs but logits moved by a number."""
    called, inputs = made(case)
    moved = {
        name: x + x.dtype.type(by) if x.dtype.kind == "f" and "logits" not in name else x
        for name, x in inputs.items()
    }
    return np.stack([called(method, **moved) for method in distributions.METHODS.get(group, (group,))])


def traced(case, method):
    """Return a method's result in a graph."""
    called, inputs = made(case)
    with tf.Graph().as_default():
        return called(method, **inputs)


def draws(tensor):
    """Return the ops that draw what a tensor is made of, each with whether it loops and has a gradient.

    What draws is a random op, a function or loop with one inside, or the innermost custom gradient around.
    """
    found, waiting, seen = {}, [tensor.op], set()
    while waiting:
        op = waiting.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        if _draws(op):
            found[op.name] = (_loops(op), False)
            continue
        above = [one.op for one in op.inputs]
        if op.type == "IdentityN" and b"CustomGradient" in op.node_def.attr["_gradient_op_type"].s:
            inside = [draws(one) for one in op.inputs]
            inside = {name: draw for one in inside for name, draw in one.items()}
            if inside and not any(has_gradient for _, has_gradient in inside.values()):
                found[op.name] = (any(loops for loops, _ in inside.values()), True)
                continue
        waiting += above
    return found


def _draws(op):
    if any(output.dtype.is_floating for output in op.outputs):
        return bool(RANDOM.search(op.type)) or any(map(_draws, _inside(op)))
    return False


def _loops(op):
    return "While" in op.type or any(map(_loops, _inside(op)))


def _inside(op):
    names = [value.func.name for value in op.node_def.attr.values() if value.HasField("func")]
    names += [one.name for value in op.node_def.attr.values() for one in value.list.func]
    return [one for name in names for one in op.graph._get_function(name).graph.get_operations()]


def several(case, _):
    """Several numbers per sample, one of them at least with a gradient that no difference of samples shows.

    A sample's CDF doesn't determine that gradient: it moves along with the other numbers.
    """
    sample = traced(case, "sample")
    found = draws(sample)
    with sample.graph.as_default(), tf.compat.v1.Session() as session:
        sizes = session.run([tf.size(sample.graph.get_tensor_by_name(f"{name}:0")) for name in found])
    batch = distribution_of(case).batch_shape.num_elements()
    return sum(sizes) > batch and any(loops or has_gradient for loops, has_gradient in found.values())


def by_rejection(case, _):
    """One draw by rejection, which is held to its CDF."""
    return [loops for loops, _ in draws(traced(case, "sample")).values()] == [True] and held_to_cdf(case, _)


def held_to_cdf(case, _):
    return f"tfp_sample_{case.code.build['distribution']}" in IMPLICIT


def by_betainc(case, group):
    graphs = [traced(case, method).graph for method in distributions.METHODS[group]]
    return all(any("betainc" in op.name.lower() for op in graph.get_operations()) for graph in graphs)


def constant(case, group):
    return np.array_equal(results(case, group, 1e-6), results(case, group, -1e-6))


def raises(case, group):
    with pytest.raises(AttributeError):
        results(case, group)
    return True


# A reason -> what makes it true, of a case and the methods that it leaves out.
REASONS = {
    "made of several draws, see samplers.yaml": several,
    "drawn by rejection, see samplers.yaml": by_rejection,
    "reparameterised implicitly, see samplers.yaml": held_to_cdf,
    "by betainc, see special.yaml": by_betainc,
    "see edges.yaml": lambda case, group: f"{case.op}_{group}" in NAMES,
    "a whole number": lambda case, group: np.array_equal(
        results(case, group), np.round(results(case, group))
    ),
    "infinite or undefined for all parameters": lambda *one: not np.isfinite(results(*one)).any(),
    "NaN, as for a gamma distribution of concentration 1": lambda *one: np.isnan(results(*one)).all(),
    "minus infinity where it is masked": lambda *one: np.isneginf(results(*one)).any(),
    "exp of log_prob": lambda case, _: np.allclose(
        results(case, "prob"), np.exp(results(case, "log_prob")), rtol=1e-12
    ),
    "1 at one point, 0 elsewhere": constant,
    "a step": constant,
    "counts samples": constant,
    "raises AttributeError in 0.25": raises,
}


@pytest.mark.parametrize(("op", "group"), LEFT_OUT)
def test_the_reason_is_true(op, group):
    case, reason = LEFT_OUT[op, group]
    assert REASONS[reason](case, group), f"{op}: {group} isn't {reason}"
