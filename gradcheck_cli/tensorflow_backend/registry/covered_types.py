"""Which op types a case says that it covers, and whether their own gradient functions were seen to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend.binding.raw_op import unknown_op_type
from gradcheck_cli.tensorflow_backend.private import private_graphs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gradcheck_cli.spec.case import Case


def covered_types(case: Case) -> tuple[str, ...]:
    """Return the op types that a case covers: those that its spec names, and a raw op's own.

    A raw op whose type has no gradient function, or is registered as not differentiable, covers nothing.
    """
    own = str(case.op_type) if case.is_raw_op else ""
    if own and own not in case.covers and private_graphs.has_gradient(own):
        return (own, *case.covers)
    return case.covers


def require_seen(
    case: Case,
    seen: Mapping[str, int],
    look_inside: Callable[[], Mapping[str, int]],
    *,
    is_vjp: bool = False,
) -> Mapping[str, int]:
    """Return which gradient functions were seen, with the number of calls.

    Args:
        case: the case, which covers some op types.
        seen: the number of calls, by op type.
        look_inside: returns what is seen if the functions that the forward calls are differentiated anew.
            It is called only if something is missing, as it costs another trace.
        is_vjp: whether the case is another one's vjp: the spec says nothing about the gradients that run
            there.

    Raises:
        CaseFailedError: of kind "covers": the gradient of an op type that the case covers wasn't seen.
    """
    wanted = () if is_vjp else covered_types(case)
    if not all(op_type in seen for op_type in wanted):
        seen = {**look_inside(), **seen}
    missing = [op_type for op_type in wanted if op_type not in seen]
    if missing:
        raise CaseFailedError("covers", _missing_message(missing, seen))
    return dict(sorted(seen.items()))


def _missing_message(missing: list[str], seen: Mapping[str, int]) -> str:
    for op_type in missing:
        if not private_graphs.is_registered(op_type):
            is_known = private_graphs.op_def(op_type) is not None
            return (
                f"{op_type} has no gradient function in TensorFlow's registry."
                if is_known
                else unknown_op_type(op_type)
            )
        if not private_graphs.has_gradient(op_type):
            return f"{op_type} is registered as not differentiable: it has no gradient to be seen."
    seen_text = f"those seen were {', '.join(sorted(seen))}" if seen else "none was seen"
    return (
        f"the registered gradient of {', '.join(missing)} must be seen to run in the backward pass, but "
        f"wasn't; {seen_text}. Let the forward use the op, without another gradient in its place, between a "
        "differentiable input and an output, or correct covers."
    )
