"""The mistakes that a diagnosis knows, in the order in which they are looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.checking.diagnosis.hints_of_places import as_block, as_masked, as_moved, as_signed, as_swap
from gradcheck_cli.checking.diagnosis.hints_of_values import as_added, as_factor, as_multiplied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.checking.diagnosis.hint_view import View
    from gradcheck_cli.checking.ops.operation import TensorInfo


def hint(views: Sequence[View], output: TensorInfo, input_info: TensorInfo) -> str:
    """Say what the gradient of a pair is, in place of the derivative.

    Args:
        views: the pair at each sample point.
        output: the output that is differentiated.
        input_info: the input that it is differentiated by.

    Returns:
        The likeliest hint that explains the gradient; empty where none does.
    """
    return (
        as_factor(views, output, input_info)
        or as_swap(views)
        or as_moved(views, output, input_info)
        or as_signed(views, output, input_info)
        or as_block(views, output, input_info)
        or as_masked(views)
        or as_multiplied(views, output, input_info)
        or as_added(views, output, input_info)
    )
