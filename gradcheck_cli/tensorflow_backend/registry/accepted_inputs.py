"""Finds inputs that an op type takes, by asking TensorFlow: its shape function first, then its kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.private import private_graphs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

# How many questions are asked at most: one to a shape function takes a millisecond, one to a kernel a few.
_MOST_BUILT = 600
_MOST_RUN = 60
_MOST_FOUND = 3
_MOST_COST = 12
_NO_KERNEL = ("No OpKernel was registered", "Could not find device")

Says = Any  # what a spec says about an input: a mapping, or a list of them for a list input


@dataclass
class Question:
    """One op type with its attrs, and the choices for each of its inputs.

    Attributes:
        op_type: TensorFlow's name for it.
        attrs: the values of its attrs.
        names: its inputs' names.
        choices: for each input, what a spec may say about it, the likeliest first.
        values: how the numbers are drawn where a choice gives a shape alone: "", "positive definite".
        may_try: says whether a kernel may be called, given a text that names the call: it may not if that
            call has ended a process before.
        why_not: the last reason for failure, if nothing is found.
    """

    op_type: str
    attrs: Mapping[str, Any]
    names: Sequence[str]
    choices: Sequence[Sequence[Says]]
    values: str = ""
    may_try: Callable[[str], bool] = lambda _call: True
    why_not: str = ""
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

        Inputs are chosen one after another while the others have unknown shapes, so that the shape function
        refuses a choice before the others are tried with it. The combinations closest to the likeliest one
        come first.

        References:
            Harvey and Ginsberg, Limited discrepancy search, IJCAI 1995.
        """
        found = 0
        for cost in range(_MOST_COST):
            for places in self._within((), cost):
                if self._runs(places):
                    found += 1
                    yield tuple(self._says(places))
                if found == _MOST_FOUND or self._is_spent():
                    return

    def _is_spent(self) -> bool:
        return not self.has_kernel or self.built >= _MOST_BUILT or self.run >= _MOST_RUN

    def _within(self, chosen: tuple[int, ...], cost: int) -> Iterator[tuple[int, ...]]:
        """Yield the choices that continue these and pass over `cost` likelier ones that would fit, too."""
        if len(chosen) == len(self.choices):
            if cost == 0 and (chosen or self._fits(chosen)):
                yield chosen
            return
        for passed in range(cost + 1):
            place = self._fitting(chosen, passed)
            if place is None:
                return
            yield from self._within((*chosen, place), cost - passed)

    def _fitting(self, chosen: tuple[int, ...], number: int) -> int | None:
        """Return the choice after these that is number `number`, from 0, of those that fit; else `None`."""
        known = self.fitting.setdefault(chosen, [])
        asked = self.asked.get(chosen, 0)
        while len(known) <= number and asked < len(self.choices[len(chosen)]) and not self._is_spent():
            if self._fits((*chosen, asked)):
                known.append(asked)
            asked += 1
        self.asked[chosen] = asked
        return known[number] if number < len(known) else None

    def _says(self, places: Sequence[int]) -> list[Says]:
        return [choices[place] for choices, place in zip(self.choices, places, strict=False)]

    def _fits(self, places: Sequence[int]) -> bool:
        """Whether the shape function accepts these inputs, whatever the later ones are."""
        if not self._is_asked_early() and len(places) < len(self.choices):
            return True
        self.built += 1
        try:
            self._create(places)
        except Exception as error:  # noqa: BLE001 (a refusal, of whatever kind)
            self._note(error, len(places))
            return False
        return True

    def _is_asked_early(self) -> bool:
        """Whether the shape function accepts inputs of unknown shape."""
        if self.takes_unknown is None:
            self.takes_unknown = True
            self.takes_unknown = self._fits(())
        return self.takes_unknown

    def _runs(self, places: Sequence[int]) -> bool:
        """Whether the kernel accepts these inputs and returns something."""
        self.run += 1
        if not self.may_try(f"{self.op_type} {dict(self.attrs)} {self._says(places)}"):
            self.why_not = "its kernel ends the process on some inputs"
            return False
        random = np.random.default_rng(0)
        whole, self.graph, self.tensors = (
            (self.graph, self.tensors),
            tf.Graph(),
            {},
        )  # a small input runs at once
        try:
            placeholders, results = self._create(places)
            feed = {one: self._drawn(says, random) for one, says in placeholders}
            fetched = [one if _is_readable(one) else one.op for one in results]
            with tf.compat.v1.Session(graph=self.graph) as session:
                given = session.run(fetched, feed)
        except Exception as error:  # noqa: BLE001 (a refusal, of whatever kind)
            self._note(error, len(self.choices) + 1)
            self.has_kernel = not any(text in str(error) for text in _NO_KERNEL)
            return False
        finally:
            self.graph, self.tensors = whole
        return any(one is None or np.size(one) > 0 for one in given)

    def _note(self, error: Exception, reached: int) -> None:
        if reached > self.reached:
            self.reached, self.why_not = reached, _told(error)

    def _create(self, places: Sequence[int]) -> tuple[list[tuple[Any, Says]], list[Any]]:
        """Create the op; inputs after these have unknown shapes.

        Returns:
            The placeholders of its inputs with the choice for each, and its outputs.
        """
        placeholders: list[tuple[Any, Says]] = []
        arguments: dict[str, Any] = dict(self.attrs)
        with self.graph.as_default():
            for place, (name, choices) in enumerate(zip(self.names, self.choices, strict=True)):
                is_known = place < len(places)
                says = choices[places[place] if is_known else 0]
                parts = says if isinstance(says, list) else [says]
                tensors = [
                    self._tensor(f"{name} {number}", one, is_known=is_known)
                    for number, one in enumerate(parts)
                ]
                placeholders += [
                    (tensor, one)
                    for tensor, one in zip(tensors, parts, strict=True)
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

    def _drawn(self, says: Mapping[str, Any], random: np.random.Generator) -> Any:
        shape, dtype = says["shape"], np.dtype(tf.as_dtype(says.get("dtype", "float64")).as_numpy_dtype)
        if "uniform" in says:
            return random.uniform(says["uniform"]["low"], says["uniform"]["high"], shape).astype(dtype)
        if dtype.kind == "b":
            return random.normal(size=shape) > 0
        drawn = random.normal(size=shape)
        if self.values and len(shape) > 1 and shape[-1] == shape[-2]:
            drawn = drawn @ np.swapaxes(drawn, -1, -2) + 2 * np.eye(shape[-1])
        return np.asarray(drawn).astype(dtype)


def _told(error: Exception) -> str:
    """Return an error's message; a kernel's follows the lines that say where it was raised."""
    lines = [line.strip() for line in str(getattr(error, "message", "")).splitlines()]
    after = next((place for place, line in enumerate(lines) if line.startswith("Node: ")), None)
    if after is None or after + 1 == len(lines):
        return frames.first_line(error)
    return f"{type(error).__name__}: {lines[after + 1]}"


def _is_readable(tensor: Any) -> bool:
    return tensor.dtype not in (tf.variant, tf.resource)
