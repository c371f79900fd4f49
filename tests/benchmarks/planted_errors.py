"""Errors to plant into the gradient of a matmul, one element each, drawn from a seed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

SMALLEST = 0.01  # of the element that it is planted into
KINDS = ("scaled", "entry")


@dataclass(frozen=True)
class Plant:
    """One error in the gradient of `y = a @ b`.

    Attributes:
        kind: `scaled` multiplies one element of the returned gradient by 1 + size, whatever the upstream;
            `entry` does so to one element of the Jacobian: what a single element of the upstream gives to a
            single element of the gradient.
        input: 0 for the gradient of a, 1 for that of b.
        element: which element of that gradient.
        upstream: for `entry`, the element of the upstream.
        factor: for `entry`, the element of the other input that the Jacobian's element is.
        size: relative, with a sign.
    """

    kind: str
    input: int
    element: tuple[int, int]
    upstream: tuple[int, int]
    factor: tuple[int, int]
    size: float

    def as_attribute(self) -> dict[str, object]:
        """Return the plant as plain data, for a spec's `attrs` and for another process."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()
        }

    def located_at(self, input_index: tuple[int, ...], output_index: tuple[int, ...]) -> bool:
        """Whether that is the wrong element of the Jacobian, or one of those that are."""
        if tuple(input_index) != self.element:
            return False
        if self.kind == "entry":
            return tuple(output_index) == self.upstream
        # A scaled gradient is wrong for every output that its element reaches: a row of y, or a column.
        return output_index[self.input] == self.element[self.input]


def draw_plants(count: int, size: int, seed: int = 0) -> list[Plant]:
    """Draw errors for a matmul of two square matrices.

    Args:
        count: how many; kinds take turns, inputs are drawn.
        size: rows of the matrices.
        seed: of the draws.

    Returns:
        Plants whose sizes are log-uniform from 1 % to 100 %, up or down.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    plants = []
    for number in range(count):
        row, inner, column = (int(index) for index in rng.integers(0, size, 3))
        which = int(rng.integers(0, 2))
        relative = math.exp(rng.uniform(math.log(SMALLEST), 0.0)) * (1 if rng.integers(0, 2) else -1)
        left, right = (row, inner), (inner, column)
        plants.append(
            Plant(
                kind=KINDS[number % 2],
                input=which,
                element=right if which else left,
                upstream=(row, column),
                factor=left if which else right,
                size=relative,
            )
        )
    return plants
