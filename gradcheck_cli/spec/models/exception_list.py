"""What specs can't check, each by name and with its reason: documents with `exceptions` instead of specs.

Each entry is an op type or, for `run --cov`, a function that carries a gradient, or a module. These documents
lie among the specs and are read with them, since they say what the specs leave out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import ConfigDict, Field

from gradcheck_cli.spec.models import versions
from gradcheck_cli.spec.models.input_model import Strict, optional
from gradcheck_cli.spec.models.leaf_types import OneOf, Text, Versions, expects
from gradcheck_cli.spec.words import EXCEPTIONS

if TYPE_CHECKING:
    from gradcheck_cli.spec.faults import FaultLog
    from gradcheck_cli.spec.yaml_tree import Node


class ExceptionModel(Strict):
    """Why an op type isn't checked."""

    kind: Annotated[str, OneOf(*EXCEPTIONS)] = Field(
        description="gpu, tpu, dtensor: it needs such a device or mesh. removed: TensorFlow makes no such op "
        "any more. raises: its gradient, or the op, raises by design. nothing: it has no floating output or "
        "input to compare. crash: it ends the process. other: what the reason says.",
        examples=["gpu"],
    )
    reason: Text = Field(
        description="Why, in the words that a reader needs.", examples=["has a kernel for GPUs only"]
    )
    tensorflow: Versions | None = optional(
        "Versions of TensorFlow in which it can't be checked; with any other it counts as missing.", "<2.18"
    )


class ExceptionsFile(Strict):
    """Op types that the specs beside it can't check."""

    model_config = ConfigDict(defer_build=True)

    # Always present, or it is another kind of document; that it may be left out avoids a second fault about a
    # broken one.
    exceptions: (
        Annotated[
            dict[str, ExceptionModel],
            Field(min_length=1),
            expects("a mapping of op types to {kind, reason}"),
        ]
        | None
    ) = optional(
        "By op type; for `run --cov` also by function, as module:function, and by module. "
        "`{gpu: why}` is the kind with its reason.",
        {"NcclReduce": {"kind": "gpu", "reason": "has a kernel for GPUs only"}},
    )


@dataclass(frozen=True)
class Excepted:
    """One op type that can't be checked.

    Attributes:
        op_type: its name, or a function's as `module:qualname`, or a module's.
        kind: one of `words.EXCEPTIONS`.
        reason: why.
        place: "path:line", where it is written.
        tensorflow: the versions of TensorFlow for which it holds; empty for any.
    """

    op_type: str
    kind: str
    reason: str
    place: str
    tensorflow: str = ""

    def holds(self, version: str) -> bool:
        """Whether it applies to a version of TensorFlow."""
        return versions.matches(version, self.tensorflow)


def read_exceptions(log: FaultLog, document: Node, places: dict[str, str]) -> list[Excepted]:
    """Read a document with `exceptions`; faults are logged.

    Args:
        log: where faults go.
        document: the document.
        places: where each op type is excepted already; extended.
    """
    document = _with_kinds(document)
    model, _ = log.validate(ExceptionsFile, document)
    listed = document.get("exceptions")
    if model is None or model.exceptions is None or listed is None:
        return []
    excepted = []
    for op_type, entry in model.exceptions.items():
        node = listed.children[op_type]
        place = f"{log.path}:{node.key_line or node.line}"
        if op_type in places:
            message = f"must be excepted once, but {places[op_type]} does so too. Remove one"
            log.add_key(listed, message, op_type)
            continue
        places[op_type] = place
        excepted.append(Excepted(op_type, entry.kind, entry.reason, place, entry.tensorflow or ""))
    return excepted


def _with_kinds(document: Node) -> Node:
    """Return the document with each `{gpu: why}` as `{kind: gpu, reason: why}`."""
    listed = document.children["exceptions"]
    entries = {name: _with_kind(entry) for name, entry in listed.children.items()}
    expanded = replace(listed, value=entries) if entries else listed
    return replace(document, value={**document.children, "exceptions": expanded})


def _with_kind(entry: Node) -> Node:
    kinds = [kind for kind in EXCEPTIONS if kind in entry.children]
    if len(kinds) != 1 or {"kind", "reason"} & set(entry.children):
        return entry
    reason = entry.children[kinds[0]]
    rest = {key: node for key, node in entry.children.items() if key != kinds[0]}
    return replace(entry, value={"kind": replace(reason, value=kinds[0]), "reason": reason, **rest})
