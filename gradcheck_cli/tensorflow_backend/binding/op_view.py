"""The `op` that a registered-gradient function gets where there is no real one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class OpView:
    """Stands in for `tf.Operation` under the binding `custom_gradient`.

    `inputs` and `outputs` are tensors, lists flattened, as TensorFlow's own ops hold them. `get_attr`
    reads the spec's `attrs`.
    """

    type: str
    name: str
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    attrs: Mapping[str, Any]

    def get_attr(self, name: str) -> Any:
        """Return the attribute of that name; ValueError if the spec gives none, as `tf.Operation` does."""
        if name not in self.attrs:
            attr_names = ", ".join(sorted(self.attrs)) or "none"
            raise ValueError(
                f"Operation {self.name!r} has no attr named {name!r}; the spec's attrs: {attr_names}."
            )
        return self.attrs[name]
