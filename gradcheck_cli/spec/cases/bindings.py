"""How an op's function and gradient belong together: the defaults and rules of `binding`.

Without `gradient` the default is `autodiff`; with it, `override` where `op_type` stands without `forward`,
else `custom_gradient`. An op has either `forward` or `op_type`; only `override` takes both, since there the
forward creates the op whose registered gradient is replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.spec.case import FunctionRef
from gradcheck_cli.spec.words import BINDINGS

if TYPE_CHECKING:
    from gradcheck_cli.spec.faults import FaultLog
    from gradcheck_cli.spec.models.document_model import Defaults
    from gradcheck_cli.spec.yaml_tree import Node

KEYS = frozenset({"forward", "op_type", "gradient", "binding"})


def function_ref(written: object) -> FunctionRef | None:
    """Return a function as named in a spec: `module:attribute` or `{numpy: module:function}`."""
    if isinstance(written, dict):
        return FunctionRef(str(written["numpy"]), numpy=True)
    return None if written is None else FunctionRef(str(written))


def binding_of(model: Defaults) -> str:
    """Return the binding, written or by default."""
    if model.binding is not None:
        return model.binding
    if model.gradient is None:
        return "autodiff"
    return "override" if model.op_type is not None and model.forward is None else "custom_gradient"


def check_binding(log: FaultLog, node: Node, model: Defaults, broken: set[str]) -> None:
    """Log contradictions among forward, op_type, gradient and binding.

    Args:
        log: where faults go.
        node: the merged op.
        model: its sound keys.
        broken: keys with their own faults, from which others would only follow.
    """
    if KEYS & broken:
        return
    binding = binding_of(model)
    has_forward, has_type, has_gradient = (
        value is not None for value in (model.forward, model.op_type, model.gradient)
    )
    if not has_forward and not has_type:
        log.add(node, "is missing; write forward: module:function, or op_type for a raw op", "forward")
        return
    facts = BINDINGS[binding]
    if has_forward and has_type and not facts.is_override:
        log.add(
            node,
            f"must stand without forward, but got both with binding {binding}. "
            "Drop one, or write binding: override",
            "op_type",
        )
    elif facts.is_override and not has_type:
        log.add(node, "is missing; binding override replaces the gradient of this op type", "op_type")
    elif not has_forward and not facts.is_of_op_type:
        log.add(node, f"is missing; binding {binding} wraps a function, not an op type", "forward")
    if not facts.has_gradient and has_gradient:
        log.add(
            node,
            "must be left out with binding autodiff, but got a function. "
            "Drop it, or write binding: custom_gradient",
            "gradient",
        )
    elif facts.has_gradient and not has_gradient:
        log.add(node, f"is missing; binding {binding} attaches it to the forward", "gradient")
    elif not facts.has_gradient and isinstance(model.forward, dict):
        log.add(
            node,
            "must be a function of tensors for binding autodiff, but got a NumPy function. "
            "Write gradient and binding: py_func",
            "forward",
        )
    if model.build is not None and not has_forward:
        log.add(node, "must go with forward, but got op_type alone. Use attrs", "build")
