"""Some tensors of an op as one real vector: their packed elements, one tensor after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.operation import (
    Array,
    Float,
    Operation,
    Stack,
    TensorInfo,
    pack,
    packed_magnitude,
    packed_size,
    unpack,
)
from gradcheck_cli.numerics.sampling import Moves

Arrays = Mapping[int, Array] | Sequence[Array]  # one for each tensor, by its index


@dataclass(frozen=True)
class Space:
    """The vectors, (size,), that stand for some inputs, or some outputs, of an op."""

    infos: Mapping[int, TensorInfo]  # the tensors by their index among the op's

    @staticmethod
    def of(infos: Sequence[TensorInfo], indices: Sequence[int]) -> Space:
        """Return the space of some of an op's inputs, or of its outputs."""
        return Space({index: infos[index] for index in indices})

    @cached_property
    def places(self) -> dict[int, slice]:
        """Where each tensor's components are."""
        ends = np.cumsum([packed_size(info) for info in self.infos.values()]).tolist()
        starts = [0, *ends]
        return {index: slice(*ends) for index, *ends in zip(self.infos, starts, ends, strict=False)}

    @property
    def size(self) -> int:
        """How many components there are."""
        return sum(packed_size(info) for info in self.infos.values())

    def locate(self, component: int) -> tuple[int, int]:
        """Return the tensor that a component belongs to, and its place in that tensor."""
        index, place = next(item for item in self.places.items() if component < item[1].stop)
        return index, component - place.start

    def split(self, vectors: Float) -> list[Float]:
        """Return each tensor's components of vectors, (..., size)."""
        return [vectors[..., place] for place in self.places.values()]

    def each(self, numbers: Sequence[Any]) -> npt.NDArray[Any]:
        """Return each tensor's number for all of its components, (size,)."""
        return np.repeat(numbers, [packed_size(info) for info in self.infos.values()])

    def pack(self, stacks: Arrays) -> Float:
        """Turn the tensors' arrays, (B, *shape) each, into vectors, (B, size)."""
        return join([pack(stacks[index], info) for index, info in self.infos.items()])

    def pack_one(self, arrays: Arrays) -> Float:
        """Turn one array of each tensor into a vector, (size,)."""
        (vector,) = self.pack({index: np.asarray(arrays[index])[np.newaxis] for index in self.infos})
        return np.asarray(vector)

    def magnitudes(self, arrays: Sequence[Array]) -> Float:
        """Return the magnitude of the element behind each component, (size,); see `packed_magnitude`."""
        return join([packed_magnitude(arrays[index], info) for index, info in self.infos.items()])

    def unpack(self, vectors: Float | Moves) -> dict[int, Stack]:
        """Turn vectors, (B, size), into the tensors' arrays; a single real tensor takes moves as well."""
        if isinstance(vectors, Moves):
            return dict.fromkeys(self.infos, vectors)
        own = zip(self.infos.items(), self.split(vectors), strict=True)
        return {index: unpack(components, info) for (index, info), components in own}


def join(parts: Sequence[Float]) -> Float:
    """Put vectors, (..., size) each, side by side, without a copy of a single one."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def function_between(
    op: Operation, inputs: Sequence[int], outputs: Sequence[int]
) -> Callable[[Float | Moves], Float]:
    """Return an op as a function of some inputs, (B, n), with some outputs side by side, (B, m).

    A single real input takes moves as well; a complex one has two parts.
    """
    points, values = Space.of(op.inputs, inputs), Space.of(op.outputs, outputs)
    return lambda vectors: values.pack(op.evaluate(points.unpack(vectors)))
