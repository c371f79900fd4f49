import pytest

from gradcheck_cli.results import Status
from gradcheck_cli.spec.load import load_mapping
from tests.support.flat_results import make_case, make_pair


@pytest.fixture
def a_case():
    """Return a function that makes a case of a spec."""

    def make(op="a", case=None, forward="ops:f", **more):
        target = {} if "op_type" in more else {"forward": forward}
        spec = {"op": op, **target, "inputs": {"x": {"shape": [2]}}, **more}
        if case is not None:
            spec["cases"] = [{"name": case}]
        return load_mapping(spec)[-1]

    return make


@pytest.fixture
def a_result():
    """Return a function that makes a case's result."""

    def make(op="a", status=Status.PASSED, case="default", duration=1.0, **changes):
        pair = make_pair("dy/dx", "y", "x", status, elements=4)
        fields = {"pairs": (pair,), "reproduce": "", **changes}
        return make_case(op, case, f"{op}.yaml:1", "graph", "float64", status, duration, **fields)

    return make
