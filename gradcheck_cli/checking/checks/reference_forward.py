"""Check that the forward equals its reference, where the spec says that it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.ops.packing import index_of, pack
from gradcheck_cli.results import CheckResult, Status

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.spec.case import Case

# Two ways of computing the same forward differ by the order of their sums: relative to the largest
# value, a few thousand units in float64 and float32, as many as the halves have in the others.
_AGREEMENT = {"float64": 1e-10, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
_AGREEMENT |= {"complex128": 1e-10, "complex64": 1e-4}


def check_reference_forward(case: Case, op: Operation, reference: Operation) -> CheckResult:
    """Compare the forward's outputs with the reference's, at the base point."""
    for output, other, value, expected in zip(
        op.outputs, reference.outputs, op.base_values, reference.base_values, strict=True
    ):
        if not output.is_differentiable:
            same = np.array_equal(value, expected)
            if not same:
                return _differs(f"{output.name} differs from the reference's.")
            continue
        found, wanted = pack(value[np.newaxis], output)[0], pack(expected[np.newaxis], other)[0]
        scale = float(np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0.0))
        allowed = np.full(wanted.shape, _AGREEMENT[output.dtype] * scale)
        if case.tolerance.atol is not None or case.tolerance.rtol is not None:
            allowed = (case.tolerance.atol or 0.0) + (case.tolerance.rtol or 0.0) * np.abs(wanted)
        with np.errstate(invalid="ignore"):
            right = (
                (np.abs(found - wanted) <= allowed) | (found == wanted) | (np.isnan(found) & np.isnan(wanted))
            )
        if not right.all():
            where = int(np.argmin(right))
            return _differs(
                f"{output.name}{list(index_of(where, output))} is {found[where]:.9e}, but the reference's is "
                f"{wanted[where]:.9e}; allowed {allowed[where]:.1e}."
            )
    return CheckResult("reference_forward", Status.PASSED)


def _differs(message: str) -> CheckResult:
    return CheckResult("reference_forward", Status.MISMATCHED, f"the forward isn't its reference: {message}")
