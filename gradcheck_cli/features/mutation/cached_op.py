"""Ops that cache their results, so that they can be checked repeatedly with different gradients."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gradcheck_cli.numerics.moves import Moves

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from gradcheck_cli.checking.ops.opener import Dtype, OpenedOperation, Opener, Opening
    from gradcheck_cli.checking.ops.operation import Array
    from gradcheck_cli.spec.case import Case

# How much memory one op's results may take together, in bytes. Beyond that they are computed again.
_MOST = 2**26


@dataclass
class CachedOperation:
    """An op whose results are cached; otherwise it behaves as the op itself."""

    inner: OpenedOperation
    _results: dict[Any, list[Any]] = field(default_factory=dict)
    _size: int = 0
    _holding: dict[frozenset[str], CachedOperation] = field(default_factory=dict)

    @property
    def opening(self) -> Opening:
        """The form of the case that this op is."""
        return self.inner.opening

    def __getattr__(self, name: str) -> object:
        """Return an attribute of the op itself."""
        return getattr(self.inner, name)

    def evaluate(self, batch: Mapping[int, Array | Moves]) -> list[Array]:
        """Evaluate the forward at several points; see `Operation`."""
        key = ("forward", *((input_index, _key_of(batch[input_index])) for input_index in sorted(batch)))
        return self._look_up(key, lambda: self.inner.evaluate(batch))

    def vjp(self, output: int, upstream: Array | Moves) -> list[Array | None]:
        """Pull upstreams of one output back; see `Operation`."""
        return self._look_up(("vjp", output, _key_of(upstream)), lambda: self.inner.vjp(output, upstream))

    def joint_vjp(self, upstreams: Mapping[int, Array]) -> list[Array | None]:
        """Pull upstreams of all outputs back; see `Operation`."""
        key = ("joint", *((output, _key_of(upstreams[output])) for output in sorted(upstreams)))
        return self._look_up(key, lambda: self.inner.joint_vjp(upstreams))

    def holding(self, stops: Collection[str]) -> CachedOperation:
        """Return the op with these `stop_gradient`s held; see `Operation`."""
        key = frozenset(stops)
        if key not in self._holding:
            self._holding[key] = CachedOperation(cast("OpenedOperation", self.inner.holding(key)))
        return self._holding[key]

    def _look_up(self, key: Hashable, compute: Callable[[], list[Any]]) -> list[Any]:
        if key in self._results:
            return list(self._results[key])
        result = compute()
        self._size += sum(value.nbytes for value in result if value is not None)
        if self._size <= _MOST:
            self._results[key] = result
        return list(result)


def _key_of(stack: Array | Moves) -> tuple[object, ...]:
    if isinstance(stack, Moves):
        arrays = (stack.base, stack.slot, stack.targets, stack.slots, stack.rows)
        return tuple(_key_of(array) for array in arrays)
    value = np.ascontiguousarray(stack)
    return (value.shape, value.dtype.str, value.tobytes())


@dataclass
class CachingOpener:
    """Opens each op of a case once, and caches it.

    Attributes:
        inner: the opener that opens them.
    """

    inner: Opener[Any]
    _opened: dict[Opening, CachedOperation | None] = field(default_factory=dict)

    @property
    def case(self) -> Case:
        """The case that is opened."""
        return self.inner.case

    def open(self, opening: Opening) -> Any:  # noqa: ANN401 (an op, never None)
        """Open a form of the case; see `Opener`."""
        return self._look_up(opening, lambda: self.inner.open(opening))

    def in_dtype(self, op: CachedOperation, dtype: Dtype) -> Any:  # noqa: ANN401 (an op, or None)
        """Open an opened op in another dtype; see `Opener`."""
        return self._look_up(replace(op.opening, dtype=dtype), lambda: self.inner.in_dtype(op.inner, dtype))

    def retrace(self, op: CachedOperation) -> Any:  # noqa: ANN401 (an op)
        """Trace an opened op's gradient once more."""
        return self.inner.retrace(op.inner)

    def vjp(self, op: CachedOperation) -> CachingOpener:
        """Return the opener of an opened op's vjp."""
        return CachingOpener(self.inner.vjp(op.inner))

    def written_ops(self, op: CachedOperation, output: int, input_index: int) -> Sequence[Any] | None:
        """Return the ops of a pair's path whose gradients the user wrote."""
        return self.inner.written_ops(op.inner, output, input_index)

    def gradients_seen(self, op: CachedOperation) -> Mapping[str, int]:
        """Return how often each registered gradient function was called when the op's vjp was built."""
        return self.inner.gradients_seen(op.inner)

    def unrun_gradients(self) -> Sequence[str]:
        """Say which custom gradients the forward called and no backward pass ran."""
        return self.inner.unrun_gradients()

    def _look_up(
        self, opening: Opening, compute: Callable[[], OpenedOperation | None]
    ) -> CachedOperation | None:
        if opening not in self._opened:
            op = compute()
            self._opened[opening] = None if op is None else CachedOperation(op)
        return self._opened[opening]
