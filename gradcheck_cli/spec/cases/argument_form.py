"""How an argument is put together of tensors: plain data, which the backend builds the argument from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """One node of an argument's structure.

    Attributes:
        kind: "tensor"; "list", "tuple", "dict" or "object", of `parts`; "sparse" (of the tensors indices,
            values, dense_shape) or "ragged" (of flat values and then row splits, the outermost first).
        parts: what a structure holds, in order.
        keys: the names of the parts of a dict or an object.
        target: the class of an object, as `module:Class`.
        shape: the dense shape of a sparse tensor.
        splits: how many ragged dimensions a ragged tensor has.
    """

    kind: str = "tensor"
    parts: tuple[Form, ...] = ()
    keys: tuple[str, ...] = ()
    target: str = ""
    shape: tuple[int, ...] = ()
    splits: int = 0

    @property
    def targets(self) -> tuple[str, ...]:
        """Every class named in it."""
        inner = tuple(target for part in self.parts for target in part.targets)
        return (self.target, *inner) if self.target else inner


TENSOR = Form()
