"""The mistakes that a diagnosis knows, in the order in which they are looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.checking.diagnosis.hints_of_places import as_block, as_masked, as_moved, as_signed, as_swap
from gradcheck_cli.checking.diagnosis.hints_of_values import as_added, as_factor, as_multiplied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.diagnosis.hint_view import View
    from gradcheck_cli.checking.ops.operation import TensorInfo


def hint(views: Sequence[View], output: TensorInfo, taken: TensorInfo) -> str:
    """Say what the gradient of a pair is, in place of the derivative.

    Args:
        views: the pair at each sample point.
        output: what is differentiated.
        taken: by what.

    Returns:
        The likeliest of what explains the gradient; empty where nothing does.
    """
    return (
        as_factor(views, output, taken)
        or as_swap(views)
        or as_moved(views, output, taken)
        or as_signed(views, output, taken)
        or as_block(views, output, taken)
        or as_masked(views)
        or as_multiplied(views, output, taken)
        or as_added(views, output, taken)
    )
