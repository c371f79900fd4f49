"""What a gradient may be off by at an op's point, element by element, as its tolerance rule has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.ops.jacobian import packed_point
from gradcheck_cli.checking.ops.packing import packed_magnitude
from gradcheck_cli.numerics import allowed_error
from gradcheck_cli.numerics.steps import scales
from gradcheck_cli.numerics.tolerance import row_scale

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.operation import Operation
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.numerics import ToleranceRule
    from gradcheck_cli.numerics.sparsity import Index


def allowed_at(  # noqa: PLR0913 (a pair, what is compared, and by which rule)
    op: Operation,
    pair: tuple[int, int],
    rule: ToleranceRule,
    own: Float,
    other: Float,
    *,
    columns: Index | None = None,
    scale: float | None = None,
) -> Float:
    """Return the error allowed between two packed Jacobians, (m, c); nothing is widened for noise.

    Args:
        op: says where, and how large the outputs are.
        pair: output and input.
        rule: of the pair.
        own: one Jacobian; its rows say how large their elements are.
        other: the other.
        columns: column of each element, where only some are stored; default all of them, in order.
        scale: the input's typical magnitude, where the spec states it.
    """
    output, number = pair
    sizes = scales(packed_point(op, number), scale)
    places = np.arange(own.shape[1])[np.newaxis] if columns is None else columns
    return allowed_error(
        rule,
        own,
        other,
        row_scale(own, sizes.weight[places])[:, np.newaxis],
        packed_magnitude(op.base_values[output], op.outputs[output])[:, np.newaxis],
        sizes.step[places],
    )
