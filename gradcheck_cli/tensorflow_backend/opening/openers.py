"""The modes, and how a case is opened in one of them, with its variables among the arguments."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.checking.ops.opener import Opening
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.results import VERSION_CHECK
from gradcheck_cli.spec.models import versions
from gradcheck_cli.spec.words import BINDINGS
from gradcheck_cli.tensorflow_backend.binding.binder import Binder
from gradcheck_cli.tensorflow_backend.binding.variable_inputs import plain_name, with_variables
from gradcheck_cli.tensorflow_backend.graph.case_state import CaseState
from gradcheck_cli.tensorflow_backend.opening.case_opener import CaseOpener
from gradcheck_cli.tensorflow_backend.opening.eager_mode import EagerMode, works_eagerly
from gradcheck_cli.tensorflow_backend.opening.graph_modes import DynamicMode, GraphMode
from gradcheck_cli.tensorflow_backend.opening.xla_mode import XlaMode
from gradcheck_cli.tensorflow_backend.private import private_variables
from gradcheck_cli.tensorflow_backend.traces.state import captured_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.opening.case_opener import Mode

MODES: dict[str, Mode] = {
    "graph": GraphMode(works_eagerly),
    "dynamic": DynamicMode(),
    "eager": EagerMode(),
    "xla": XlaMode(),
}


def require_version(case: Case) -> None:
    """Refuse a case that is for other versions of TensorFlow, or for modules that aren't installed.

    Raises:
        CaseSkippedError: of the check `VERSION_CHECK`, with the required and the installed version.
    """
    if case.tensorflow and not versions.matches(tf.__version__, case.tensorflow):
        raise CaseSkippedError(
            VERSION_CHECK, f"it is for TensorFlow {case.tensorflow}; this is {tf.__version__}."
        )
    missing = [name for name in case.needs if find_spec(name) is None]
    if missing:
        raise CaseSkippedError(VERSION_CHECK, f"it needs {' and '.join(missing)}, which isn't installed.")


def opener_of(case: Case, mode: str, like: CaseOpener[Any] | None = None) -> CaseOpener[Any]:
    """Return the opener of a case in a mode; its `case` has the variables among the arguments, if requested.

    Args:
        case: the case.
        mode: the mode.
        like: an opener of the same case in another mode; the layers that it built are used here too.

    Raises:
        CaseSkippedError: it is for other versions of TensorFlow, or the mode doesn't support its binding.
        CaseFailedError: the variables can't be found, since the forward raises.
    """
    require_version(case)
    reason = BINDINGS[case.binding].unfit.get(mode) or MODES[mode].refusal(case)
    if reason is not None:
        raise CaseSkippedError("mode", reason)
    state = CaseState() if like is None else CaseState(built=like.state.built, written=like.state.written)
    opener: CaseOpener[Any] = CaseOpener(case, MODES[mode], state)
    is_layer = case.variables is None and private_variables.is_layer(
        Binder(case, str, (), built=state.built).target()
    )
    if case.variables or is_layer:
        # Known shapes without a compiler are enough to find them.
        finder = opener if mode in ("graph", "eager") else replace(opener, mode=GraphMode())
        op = finder.open(Opening())
        if case.variables:
            return _with_variables(opener, _choose(case, op.trainable), op)
        # A layer's weights become inputs unless it overwrites them itself, as SpectralNormalization does.
        variables = [
            variable for variable in op.trainable if id(variable.handle) not in op.written_before_read
        ]
        if variables:
            return _with_variables(opener, variables, op)
    if case.variables is None and case.method != "complex_step":  # it can't move them
        variables = _variables_of_custom_gradients(opener)
        return _with_variables(opener, variables, opener.open(Opening())) if variables else opener
    return opener


def _choose(case: Case, trainable: Sequence[Any]) -> Sequence[Any]:
    """Return the trainable variables that are inputs: all of them, or those that the caller chose.

    Raises:
        CaseFailedError: the forward doesn't use one of these.
    """
    if case.given is None or case.given.variables is None:
        return trainable
    used = {id(variable.handle) for variable in trainable}
    chosen: Sequence[Any] = case.given.variables
    missing = [plain_name(variable) for variable in chosen if id(variable.handle) not in used]
    if missing:
        raise CaseFailedError(
            "variables",
            f"the function doesn't use {', '.join(missing)}, or it isn't trainable; leave it out of "
            "variables.",
        )
    return chosen


def _variables_of_custom_gradients(opener: CaseOpener[Any]) -> list[Any]:
    """Return the variables that the user wrote gradients for; these are checked by default.

    If the spec has a reference, return only those that it uses as well: it shows nothing about the others.
    """
    try:
        op = opener.open(Opening())
        variables = private_variables.in_order_of_creation(op.variables_of_gradients)
        if variables and opener.case.reference is not None:
            used = captured_ids(opener.open(Opening(of="reference")).traced.forward.function)
            variables = [variable for variable in variables if id(variable.handle) in used]
    except (CaseFailedError, CaseSkippedError, GradientFormError):
        return []  # it is raised again where the case is checked
    return variables


def _with_variables(opener: CaseOpener[Any], variables: Sequence[Any], op: Any) -> CaseOpener[Any]:
    """Return the opener of the case with variables among its inputs.

    Raises:
        CaseFailedError: there are none, or the forward writes to one before it reads it. The gradient is then
            for the new value, and a difference in the old one shows nothing about it.
    """
    written = [
        plain_name(variable) for variable in variables if id(variable.handle) in op.written_before_read
    ]
    if written:
        raise CaseFailedError(
            "variables",
            f"the forward writes to {', '.join(written)}: if it reads that again, the gradient is for the "
            "written value, and differences in the old value show nothing about it. Say 'variables: false', "
            "or check the part after the write.",
        )
    state = replace(opener.state, draws={}, graphs={}, variables=tuple(variables))
    target = Binder(opener.case, str, (), built=state.built).target()
    return replace(opener, case=with_variables(opener.case, variables, target), state=state)
