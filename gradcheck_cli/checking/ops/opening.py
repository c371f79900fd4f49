"""Which form of a case an op is: the key by which openers open ops and find them again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dtype = Literal["declared", "float64", "complex128"]


@dataclass(frozen=True)
class Opening:
    """One form of a case.

    Attributes:
        sample: index of the sample point.
        of: the case's forward, or the spec's reference function.
        dtype: the dtypes that the spec names; or float64, with complex128 for complex tensors; or complex128.
        reversed: give custom gradients their variables in reverse order.
    """

    sample: int = 0
    of: Literal["forward", "reference"] = "forward"
    dtype: Dtype = "declared"
    reversed: bool = False

    @property
    def is_reference(self) -> bool:
        """Whether this is the spec's reference function."""
        return self.of == "reference"
