from __future__ import annotations

import numpy as np

from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.results import Status
from tests.support.numpy_op import product

NAMES = {"gradient_variables": ("w", "v")}


def found(op, **changes):
    findings = check_case(op.case(**changes), op, range(len(op.points)))
    return {check.name: check for check in findings.checks if check.name.startswith("variables")}


def test_what_could_not_be_checked_is_not_green():
    (check,) = found(product(facts=NAMES)).values()
    assert (check.name, check.status) == ("variables", Status.INCONCLUSIVE)
    assert check.message.endswith("say 'variables: true' to check them, or false to leave them.")


def test_one_variable_has_no_order():
    assert found(product(facts={"gradient_variables": ("w",)}), variables=True) == {}


def test_another_order_that_gives_another_gradient_is_found():
    op = product(facts=NAMES)
    op.reordered = lambda _: product(lambda u, a, b: (u * a, u * b), facts=NAMES).operation()
    (check,) = found(op, variables=True).values()
    assert check.status is Status.MISMATCHED
    assert check.message.startswith("dy/da differs with the variables in another order: ")


def test_another_order_that_fails_is_found():
    def fails(_sample):
        raise CaseFailedError("gradient", "no such shape.")

    op = product(facts=NAMES)
    op.reordered = fails
    (check,) = found(op, variables=True).values()
    assert check.status is Status.MISMATCHED
    assert check.message.startswith(
        "with the variables in another order, the gradient fails: no such shape. Do"
    )


def test_another_order_that_gives_another_gradient_of_a_large_pair_is_found():
    points = [{"a": np.linspace(1, 2, 80), "b": np.linspace(-1, 3, 80)}]
    op = product(facts=NAMES, points=points)
    assert found(op, variables=True, method="probe")["variables_order"].status is Status.PASSED
    op.reordered = lambda _: product(lambda u, a, b: (u * a, u * b), facts=NAMES, points=points).operation()
    (check,) = found(op, variables=True, method="probe").values()
    assert check.status is Status.MISMATCHED
    assert check.message.startswith("dy/da differs with the variables in another order: ")
