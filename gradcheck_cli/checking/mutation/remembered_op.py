"""An op that remembers what it was asked: to be checked again and again with another gradient each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gradcheck_cli.numerics.moves import Moves

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from gradcheck_cli.checking.ops.opener import Opener
    from gradcheck_cli.checking.ops.operation import Array, Operation
    from gradcheck_cli.spec.case import Case

# What one op's answers may take together, in bytes; beyond that it is asked again.
_MOST = 2**26


@dataclass
class RememberedOperation:
    """An op whose answers are kept; in all else it is the op itself."""

    inner: Operation
    _kept: dict[Any, list[Any]] = field(default_factory=dict)
    _size: int = 0
    _held: dict[frozenset[str], RememberedOperation] = field(default_factory=dict)

    def __getattr__(self, name: str) -> object:
        """Return what the op itself has."""
        return getattr(self.inner, name)

    def evaluate(self, batch: Mapping[int, Array | Moves]) -> list[Array]:
        """Evaluate the forward at several points; see `Operation`."""
        key = ("forward", *((number, _key(batch[number])) for number in sorted(batch)))
        return self._once(key, lambda: self.inner.evaluate(batch))

    def vjp(self, output: int, upstream: Array | Moves) -> list[Array | None]:
        """Pull upstreams of one output back; see `Operation`."""
        return self._once(("vjp", output, _key(upstream)), lambda: self.inner.vjp(output, upstream))

    def joint_vjp(self, upstreams: Mapping[int, Array]) -> list[Array | None]:
        """Pull upstreams of all outputs back; see `Operation`."""
        key = ("joint", *((output, _key(upstreams[output])) for output in sorted(upstreams)))
        return self._once(key, lambda: self.inner.joint_vjp(upstreams))

    def holding(self, stops: Collection[str]) -> RememberedOperation:
        """Return the op with these `stop_gradient`s held; see `Operation`."""
        key = frozenset(stops)
        if key not in self._held:
            self._held[key] = RememberedOperation(self.inner.holding(key))
        return self._held[key]

    def _once(self, key: Any, ask: Callable[[], list[Any]]) -> list[Any]:  # noqa: ANN401 (a key of any make)
        if key in self._kept:
            return list(self._kept[key])
        found = ask()
        self._size += sum(value.nbytes for value in found if value is not None)
        if self._size <= _MOST:
            self._kept[key] = found
        return list(found)


def _key(stack: Array | Moves) -> tuple[object, ...]:
    if isinstance(stack, Moves):
        parts = (stack.base, stack.slot, stack.targets, stack.slots, stack.rows)
        return tuple(_key(part) for part in parts)
    value = np.ascontiguousarray(stack)
    return (value.shape, value.dtype.str, value.tobytes())


@dataclass
class RememberingOpener:
    """Opens each op of a case once, and keeps it.

    Attributes:
        inner: what opens them.
    """

    inner: Opener[Any]
    _opened: dict[Any, Any] = field(default_factory=dict)

    @property
    def case(self) -> Case:
        """The case that is opened."""
        return self.inner.case

    def declared(self, sample: int) -> Any:  # noqa: ANN401 (an op)
        """Open the op in the dtypes that the spec names."""
        return self._once(("declared", sample), lambda: self.inner.declared(sample))

    def surrogate(self, sample: int) -> Any:  # noqa: ANN401 (an op)
        """Open the spec's reference function."""
        return self._once(("surrogate", sample), lambda: self.inner.surrogate(sample))

    def afresh(self, own: Operation) -> Any:  # noqa: ANN401 (an op)
        """Trace an opened op's gradient once more."""
        return self.inner.afresh(cast("RememberedOperation", own).inner)

    def reordered(self, sample: int) -> Any:  # noqa: ANN401 (an op)
        """Open the op with the variables of custom gradients in reverse order."""
        return self._once(("reordered", sample), lambda: self.inner.reordered(sample))

    def in_float64(self, own: Operation) -> Any:  # noqa: ANN401 (an op, or None)
        """Open an opened op in float64 too."""
        op = cast("RememberedOperation", own)
        return self._once(("float64", id(op)), lambda: self.inner.in_float64(op.inner))

    def in_complex(self, own: Operation) -> Any:  # noqa: ANN401 (an op)
        """Open an opened op in complex128."""
        op = cast("RememberedOperation", own)
        return self._once(("complex", id(op)), lambda: self.inner.in_complex(op.inner))

    def gradients_seen(self, own: Operation) -> Mapping[str, int]:
        """Return how often each registered gradient function was called as the op's vjp was built."""
        return self.inner.gradients_seen(cast("RememberedOperation", own).inner)

    def vjp(self, own: Operation) -> RememberingOpener:
        """Return what opens the vjp of an opened op."""
        return RememberingOpener(self.inner.vjp(cast("RememberedOperation", own).inner))

    def _once(self, key: Any, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 (an op, or None)
        if key not in self._opened:
            found = ask()
            self._opened[key] = None if found is None else RememberedOperation(found)
        return self._opened[key]
