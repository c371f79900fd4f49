"""A draft of a spec, as text with comments on what was guessed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gradcheck_cli.spec.yaml_tree import as_flow

_GUESS = "  # a guess that works: put your own here"
_UNTRIED = "  # a guess: put your own here"
_RIGHT = "  # values for which its gradient isn't wrong"
_QUESTION = """\
# Is it meant for the inputs of this case, too? With them its gradient differs from the derivative. If they
# are outside of its domain, delete the case. If not, delete 'pairs': a run then shows what is wrong."""
DEADLY = "it ends the process on some of the inputs that were tried"
_BROADCAST = "  # broadcast, so that its gradient needs a sum"


@dataclass(frozen=True)
class DraftInput:
    """One input: what the spec will say about it."""

    name: str
    says: Any
    is_guess: bool = False  # whether its shape is a guess that may be changed
    is_of_op_type: bool = False
    # whether its shape lacks an axis of the others', so that a gradient needs a sum
    is_broadcast: bool = False

    @property
    def is_shaped(self) -> bool:
        """Whether it is a tensor with a shape that may be changed."""
        return self.is_guess and isinstance(self.says, dict) and "shape" in self.says

    @property
    def parts(self) -> dict[str, DraftInput]:
        """The tensors of a structure, by name; those of a list are alike, and count as one."""
        for key in ("fields", "dict"):
            if isinstance(self.says, dict) and key in self.says:
                return {name: replace(self, name=name, says=says) for name, says in self.says[key].items()}
        return {}

    def with_parts(self, parts: Iterable[DraftInput]) -> DraftInput:
        """Return the structure with other tensors."""
        key = "fields" if "fields" in self.says else "dict"
        return replace(self, says={**self.says, key: {part.name: part.says for part in parts}}, is_guess=True)


@dataclass(frozen=True)
class Draft:
    """A spec before it is written."""

    op: str
    keys: Mapping[str, Any]  # its content, by key, in order, except `inputs`
    inputs: tuple[DraftInput, ...]  # in forward's order
    remarks: Mapping[str, str] = field(default_factory=dict)  # comments, by key
    notes: tuple[str, ...] = ()  # lines for the end, such as keys that may be of use
    # names of the functions that the code calls, which hint at the values that it takes
    called: frozenset[str] = frozenset()
    parameters: tuple[str, ...] = ()  # the names of all arguments, in order
    asked: Mapping[str, Any] = field(default_factory=dict)  # a case with inputs for which it is wrong
    runs: bool = True  # whether its guesses work

    def mapping(self) -> dict[str, Any]:
        """Return the spec as a mapping, for `load_mapping`."""
        return {
            "op": self.op,
            **self.keys,
            "inputs": {draft_input.name: draft_input.says for draft_input in self.inputs},
            **({"cases": [self.asked]} if self.asked else {}),
        }

    def with_input(self, name: str) -> Draft:
        """Return the draft with one of its attrs as an input."""
        attrs = {**self.keys["attrs"]}
        added = DraftInput(name, {"value": attrs.pop(name)})
        keys = {key: value for key, value in self.keys.items() if key != "attrs"}
        order = [
            *self.parameters,
            *(made.name for made in (*self.inputs, added)),
        ]  # those of `*args` come last
        inputs = sorted((*self.inputs, added), key=lambda made: order.index(made.name))
        return replace(self, keys=keys | ({"attrs": attrs} if attrs else {}), inputs=tuple(inputs))

    def with_says(
        self, change: Callable[[Any], Any], only: Callable[[DraftInput], bool] = lambda _: True
    ) -> Draft:
        """Return the draft with what it says about its inputs, or about some of them, changed."""
        inputs = (replace(made, says=change(made.says)) if only(made) else made for made in self.inputs)
        return replace(self, inputs=tuple(inputs))

    def with_note(self, *lines: str) -> Draft:
        """Return the draft with lines before its notes."""
        return replace(self, notes=(*lines, *self.notes))

    def filled(self, chosen: Iterable[Any]) -> Draft:
        """Return the draft with what it says about each tensor."""
        left = (
            replace(tensor, says=says, is_guess=True) if says != tensor.says else tensor
            for tensor, says in zip(self.tensors(), chosen, strict=True)
        )
        inputs = [
            made.with_parts(itertools.islice(left, len(made.parts))) if made.parts else next(left)
            for made in self.inputs
        ]
        return replace(self, inputs=tuple(inputs))

    def tensors(self) -> list[DraftInput]:
        """Return the tensors among the inputs, those of structures one by one."""
        return [part for made in self.inputs for part in (made.parts.values() or [made])]

    def shapes(self) -> list[Any]:
        """Return the shape of each tensor, `None` for none; those of a list are alike, and count as one."""
        says = (made.says[0] if isinstance(made.says, list) else made.says or {} for made in self.tensors())
        return [own.get("shape") for own in says]

    def text(self) -> str:
        """Return the YAML, with comments beside guesses."""
        lines = [f"op: {as_flow(self.op)}"]
        for key, value in self.keys.items():
            remark = self.remarks.get(key, "")
            lines.append(f"{key}: {as_flow(value)}" + (f"  # {remark}" if remark else ""))
        lines.append("inputs:" if self.inputs else "inputs: {}")
        for draft_input in self.inputs:
            guess = _RIGHT if self.asked else _GUESS if self.runs else _UNTRIED
            remark = _BROADCAST if draft_input.is_broadcast else guess if draft_input.is_guess else ""
            lines.append(f"  {as_flow(draft_input.name)}: {as_flow(draft_input.says)}{remark}")
        if self.asked:
            keys = [f"{key}: {as_flow(value)}" for key, value in self.asked.items()]
            lines += [_QUESTION, "cases:", f"- {keys[0]}", *(f"  {key}" for key in keys[1:])]
        lines += [f"# {note}" for note in self.notes]
        return "\n".join(lines) + "\n"
