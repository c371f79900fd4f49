"""Finds inputs that an op type accepts: its shape function is asked first, then its kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.private import private_graphs

# Limits of calls: of a shape function, which takes a millisecond, and of a kernel, which takes a few.
_MOST_BUILT = 600
_MOST_RUN = 60
_MOST_ANSWERS = 3
_MOST_COST = 12
_HANDLES = (tf.variant, tf.resource)  # they can't be read
_NO_KERNEL = ("No OpKernel was registered", "Could not find device")

Says = Any  # what a spec says about an input: a mapping, or a list of them for a list input


@dataclass
class Question:
    """One op type with its attrs, and the choices for each of its inputs."""

    op_type: str  # TensorFlow's name for it
    attrs: Mapping[str, Any]
    names: Sequence[str]
    choices: Sequence[Sequence[Says]]  # for each input, what a spec may say about it, the likeliest first
    values: str = ""  # how the numbers are drawn where a choice gives a shape alone: "", "positive definite"
    # says whether a kernel may be called, given a text that names the call; not if that call has ended a
    # process before
    may_try: Callable[[str], bool] = lambda _call: True
    why_not: str = ""  # the refusal that came furthest
    reached: int = -1
    has_kernel: bool = True
    takes_unknown: bool | None = None
    built: int = 0
    run: int = 0
    graph: tf.Graph = field(default_factory=tf.Graph)
    tensors: dict[str, Any] = field(default_factory=dict)
    asked: dict[tuple[int, ...], int] = field(default_factory=dict)
    fitting: dict[tuple[int, ...], list[int]] = field(default_factory=dict)

    def answers(self) -> Iterator[tuple[Says, ...]]:
        """Yield combinations of inputs that the shape function and the kernel accept.

        Inputs are chosen one after another, and later ones have unknown shapes meanwhile. So a choice that
        the shape function refuses is never combined with choices for later inputs. The combinations closest
        to the likeliest one come first.

        References:
            Harvey and Ginsberg, Limited discrepancy search, IJCAI 1995.
        """
        answer_count = 0
        for cost in range(_MOST_COST):
            for choice_indices in self._continue((), cost):
                if self._runs(choice_indices):
                    answer_count += 1
                    yield tuple(self._choices_at(choice_indices))
                if answer_count == _MOST_ANSWERS or self._is_spent():
                    return

    def _is_spent(self) -> bool:
        return not self.has_kernel or self.built >= _MOST_BUILT or self.run >= _MOST_RUN

    def _continue(self, chosen: tuple[int, ...], cost: int) -> Iterator[tuple[int, ...]]:
        """Yield the continuations of these choices that pass over `cost` likelier choices that fit, too."""
        if len(chosen) == len(self.choices):
            if cost == 0 and (chosen or self._fits(chosen)):
                yield chosen
            return
        for passed in range(cost + 1):
            choice_index = self._find_fitting(chosen, passed)
            if choice_index is None:
                return
            yield from self._continue((*chosen, choice_index), cost - passed)

    def _find_fitting(self, chosen: tuple[int, ...], rank: int) -> int | None:
        """Return the choice of this rank, from 0, among those that fit after these; `None` if none."""
        fitting_indices = self.fitting.setdefault(chosen, [])
        next_index = self.asked.get(chosen, 0)
        while (
            len(fitting_indices) <= rank
            and next_index < len(self.choices[len(chosen)])
            and not self._is_spent()
        ):
            if self._fits((*chosen, next_index)):
                fitting_indices.append(next_index)
            next_index += 1
        self.asked[chosen] = next_index
        return fitting_indices[rank] if rank < len(fitting_indices) else None

    def _choices_at(self, choice_indices: Sequence[int]) -> list[Says]:
        return [choices[index] for choices, index in zip(self.choices, choice_indices, strict=False)]

    def _fits(self, choice_indices: Sequence[int]) -> bool:
        """Whether the shape function accepts these inputs, with later ones of unknown shape."""
        if not self._is_asked_early() and len(choice_indices) < len(self.choices):
            return True
        self.built += 1
        try:
            self._create(choice_indices)
        except Exception as error:  # noqa: BLE001 (a refusal, of whatever kind)
            self._note(error, len(choice_indices))
            return False
        return True

    def _is_asked_early(self) -> bool:
        """Whether the shape function accepts inputs of unknown shape."""
        if self.takes_unknown is None:
            self.takes_unknown = True
            self.takes_unknown = self._fits(())
        return self.takes_unknown

    def _runs(self, choice_indices: Sequence[int]) -> bool:
        """Whether the kernel accepts these inputs and returns something."""
        self.run += 1
        if not self.may_try(f"{self.op_type} {dict(self.attrs)} {self._choices_at(choice_indices)}"):
            self.why_not = "its kernel ends the process on some inputs"
            return False
        random = np.random.default_rng(0)
        saved = self.graph, self.tensors
        self.graph, self.tensors = tf.Graph(), {}  # without the ops of earlier questions
        try:
            placeholders, results = self._create(choice_indices)
            feed = {tensor: self._draw(says, random) for tensor, says in placeholders}
            fetched = [tensor.op if tensor.dtype in _HANDLES else tensor for tensor in results]
            with tf.compat.v1.Session(graph=self.graph) as session:
                values = session.run(fetched, feed)
        except Exception as error:  # noqa: BLE001 (a refusal, of whatever kind)
            self._note(error, len(self.choices) + 1)
            self.has_kernel = not any(text in str(error) for text in _NO_KERNEL)
            return False
        finally:
            self.graph, self.tensors = saved
        return any(value is None or np.size(value) > 0 for value in values)

    def _note(self, error: Exception, reached: int) -> None:
        if reached > self.reached:
            self.reached, self.why_not = reached, _message_of(error)

    def _create(self, choice_indices: Sequence[int]) -> tuple[list[tuple[Any, Says]], list[Any]]:
        """Create the op; inputs after these have unknown shapes. Return its inputs and its outputs."""
        placeholders: list[tuple[Any, Says]] = []
        arguments: dict[str, Any] = dict(self.attrs)
        with self.graph.as_default():
            for input_index, (name, choices) in enumerate(zip(self.names, self.choices, strict=True)):
                is_known = input_index < len(choice_indices)
                says = choices[choice_indices[input_index] if is_known else 0]
                elements = says if isinstance(says, list) else [says]
                tensors = [
                    self._tensor(f"{name} {element_index}", element, is_known=is_known)
                    for element_index, element in enumerate(elements)
                ]
                placeholders += [
                    (tensor, element)
                    for tensor, element in zip(tensors, elements, strict=True)
                    if tensor.op.type == "Placeholder"
                ]
                arguments[name] = tensors if isinstance(says, list) else tensors[0]
            created = private_graphs.apply_op(self.op_type, arguments)
        results = [] if isinstance(created, tf.Operation) else tf.nest.flatten(created)
        return placeholders, results

    def _tensor(self, name: str, says: Says, *, is_known: bool) -> Any:
        """Return an input's tensor: a constant if its value is given, else a placeholder."""
        key = f"{name} {says if is_known else ''}"
        if key not in self.tensors:
            dtype = says.get("dtype", "float64")
            if is_known and "value" in says:
                self.tensors[key] = tf.constant(says["value"], dtype)
            else:
                self.tensors[key] = tf.compat.v1.placeholder(dtype, says["shape"] if is_known else None)
        return self.tensors[key]

    def _draw(self, says: Mapping[str, Any], random: np.random.Generator) -> Any:
        shape, dtype = says["shape"], np.dtype(tf.as_dtype(says.get("dtype", "float64")).as_numpy_dtype)
        if "uniform" in says:
            return random.uniform(says["uniform"]["low"], says["uniform"]["high"], shape).astype(dtype)
        if dtype.kind == "b":
            return random.normal(size=shape) > 0
        drawn = random.normal(size=shape)
        if self.values and len(shape) > 1 and shape[-1] == shape[-2]:
            drawn = drawn @ np.swapaxes(drawn, -1, -2) + 2 * np.eye(shape[-1])
        return np.asarray(drawn).astype(dtype)


def _message_of(error: Exception) -> str:
    """Return an error's message; a kernel's follows the lines that say where it was raised."""
    lines = [line.strip() for line in str(getattr(error, "message", "")).splitlines()]
    node_line = next((index for index, line in enumerate(lines) if line.startswith("Node: ")), None)
    if node_line is None or node_line + 1 == len(lines):
        return frames.first_line(error)
    return f"{type(error).__name__}: {lines[node_line + 1]}"
