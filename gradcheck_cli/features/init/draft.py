"""A draft of a spec, as text: what was found out, with comments on the rest."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gradcheck_cli.spec.yaml_tree import as_flow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class DraftInput:
    """One input: what the spec will say about it, and whether its shape is a guess that may be changed."""

    name: str
    says: Any
    is_guess: bool = False

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
    """A spec before it is written.

    Attributes:
        op: its name.
        keys: its content, by key, in order, except `inputs`.
        inputs: in forward's order.
        remarks: comments, by key.
        notes: lines for the end, such as keys that may be of use.
        called: names of the functions that the code calls, which hint at the values that it takes.
    """

    op: str
    keys: Mapping[str, Any]
    inputs: tuple[DraftInput, ...]
    remarks: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    called: frozenset[str] = frozenset()

    def mapping(self) -> dict[str, Any]:
        """Return the spec as a mapping, for `load_mapping`."""
        return {
            "op": self.op,
            **self.keys,
            "inputs": {draft_input.name: draft_input.says for draft_input in self.inputs},
        }

    def with_key(self, key: str, value: object, remark: str = "") -> Draft:
        """Return the draft with one more key."""
        remarks = {**self.remarks, key: remark} if remark else self.remarks
        return replace(self, keys={**self.keys, key: value}, remarks=remarks)

    def without_key(self, key: str) -> Draft:
        """Return the draft without a key."""
        return replace(self, keys={name: value for name, value in self.keys.items() if name != key})

    def text(self) -> str:
        """Return the YAML, with comments beside guesses."""
        lines = [f"op: {as_flow(self.op)}"]
        for key, value in self.keys.items():
            remark = self.remarks.get(key, "")
            lines.append(f"{key}: {as_flow(value)}" + (f"  # {remark}" if remark else ""))
        lines.append("inputs:" if self.inputs else "inputs: {}")
        for draft_input in self.inputs:
            guess = "  # values that it accepts: replace them with yours" if draft_input.is_guess else ""
            lines.append(f"  {as_flow(draft_input.name)}: {as_flow(draft_input.says)}{guess}")
        lines += [f"# {note}" for note in self.notes]
        return "\n".join(lines) + "\n"
