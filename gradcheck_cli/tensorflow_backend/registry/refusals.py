"""Refuses to draft a spec of what is no forward: a method, a gradient function, a class without a call."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend.binding import loading

if TYPE_CHECKING:
    from collections.abc import Sequence


def refuse(target: str, value: Any, parameters: Sequence[str]) -> None:
    """Refuse what is no forward: a spec of it would test something else than its author means.

    Args:
        target: `module:attribute`.
        value: what it names.
        parameters: names of its parameters.

    Raises:
        CaseFailedError: of kind "forward".
    """
    why = ""
    if "." in target.partition(":")[2] and parameters and parameters[0] == "self":
        owner = target.rpartition(".")[0]
        is_called = call_of(loading.load(owner, "forward")) is not None
        by_class = f"the class, {owner}, whose call is checked, or " if is_called else ""
        why = (
            f"is a method, and self is no tensor: name {by_class}a function that makes an object and "
            "calls it."
        )
    elif inspect.isclass(value) and call_of(value) is None:
        why = (
            "has neither call nor __call__, so its objects can't be called: name a function that makes one "
            "and calls a method."
        )
    elif inspect.isfunction(value) and len(parameters) > 1 and parameters[0] == "op":
        why = (
            "is a gradient function, (op, *upstreams), and the function that it belongs to isn't beside it. "
            f"Write a spec with 'gradient: {target}' and that function as 'forward'; for the gradient of an "
            "op type, also 'op_type' and 'binding: override'."
        )
    if why:
        raise CaseFailedError("forward", f"{target} {why}")


def call_of(kind: Any) -> Any:
    """Return the method that runs when an object of a class is called; `None` if there is none."""
    known = {name for owner in inspect.getmro(kind) for name in vars(owner)}
    return next((getattr(kind, name) for name in ("call", "__call__") if name in known), None)
