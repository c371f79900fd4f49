"""Call a forward eagerly, as a function: what it changes is put back, what it draws and stops is held."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.tensorflow_backend import private_eager, private_variables
from gradcheck_cli.tensorflow_backend.eager_record import Record, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


@dataclass
class EagerCall:
    """A forward that is called again and again, at the base point first.

    Attributes:
        function: takes tensors, returns a list of tensors.
        freeze: whether a `stop_gradient` that backpropagation meets keeps its base value.
        seed: of its draws, the same in each call.
        record: what the first call ran.
        reverse: give custom gradients their variables in reverse order.
        gradient_variables: those that a custom gradient has gradients for, by `id`.
        custom_gradients: how many of the forward's ran at the base point.
        written: each variable that a call writes to, with its value before the first.
    """

    function: Callable[..., Sequence[Any]]
    freeze: bool = True
    seed: int = 0
    reverse: bool = False
    gradient_variables: dict[int, Any] = field(default_factory=dict)
    record: Record = field(default_factory=Record)
    custom_gradients: int = 0
    written: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    draws: list[str] = field(default_factory=list)
    _stops: list[Any] = field(default_factory=list)

    def at_base(self, inputs: Sequence[Any]) -> list[Any]:
        """Call at the base point, and note what is to be held and put back from then on."""

        def note(variable: Any) -> None:
            self.written.setdefault(id(variable), (variable, variable.read_value()))

        def stop(value: Any, is_met: bool) -> Any:  # noqa: FBT001 (called by position)
            if is_met and isinstance(value, tf.Tensor):
                self._stops.append(value)
            return value

        hold = private_eager.stop_gradients_replaced(stop) if self.freeze else contextlib.nullcontext()

        def count() -> None:
            self.custom_gradients += 1

        with (
            self._put_back(),
            self._in_order(),
            hold,
            private_eager.writes_noted(note),
            private_eager.custom_gradients_noted(count),
        ):
            tf.random.set_seed(self.seed)
            outputs = self.record.run(lambda: self.function(*inputs))
        self.draws = self.record.draws(outputs)
        return outputs

    @property
    def held(self) -> Mapping[str, int]:
        """How many ops are held, by type."""
        return Counter([*["StopGradient"] * len(self._stops), *self.draws])

    @property
    def stops(self) -> list[int]:
        """The ids of what the `stop_gradient`s gave at the base point."""
        return [identity(value) for value in self._stops]

    def moved(self, inputs: Sequence[Any]) -> list[Any]:
        """Call with inputs that have moved, with what is to be held as it was at the base point."""
        values = iter(self._stops)

        def stop(value: Any, is_met: bool) -> Any:  # noqa: FBT001 (called by position)
            held = next(values, None) if is_met else None
            # One that the base point had none of: another branch is taken, or a loop goes on for longer.
            return value if held is None or held.shape != value.shape else held

        with contextlib.ExitStack() as stack:
            stack.enter_context(self._put_back())
            if self._stops:  # inside a tf.function, they can only be held where it runs op by op
                stack.enter_context(private_eager.functions_run_eagerly())
                stack.enter_context(private_eager.stop_gradients_replaced(stop))
            self.reseed(self.seed)
            return list(self.function(*inputs))

    @contextlib.contextmanager
    def unheld(self) -> Iterator[Callable[..., list[Any]]]:
        """Give the forward as its user calls it, with the base point's draws; put back what it changes."""

        def call(*inputs: Any) -> list[Any]:
            self.reseed(self.seed)
            return list(self.function(*inputs))

        # In a function that is traced already, the order of variables is settled.
        opened = private_eager.functions_run_eagerly() if self.reverse else contextlib.nullcontext()
        with self._put_back(), self._in_order(), opened:
            yield call

    def _in_order(self) -> contextlib.AbstractContextManager[None]:
        def note(variables: Sequence[Any]) -> None:
            self.gradient_variables.update((id(variable), variable) for variable in variables)

        return private_variables.order_of_variables(note, reverse=self.reverse)

    def reseed(self, seed: int) -> None:
        """Set the seed, where anything is drawn: it costs a kernel's making for each op."""
        if self.draws:
            tf.random.set_seed(seed)

    @contextlib.contextmanager
    def _put_back(self) -> Iterator[None]:
        with private_eager.seed_restored():
            try:
                yield
            finally:
                for variable, value in self.written.values():
                    variable.assign(value)
