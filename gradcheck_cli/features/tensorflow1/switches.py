"""Runs each module's code under the TensorFlow behaviour that it asks for, as code of TensorFlow 1 does.

`tf.compat.v1.disable_v2_behavior()` at the top of a module changes the whole process: eager execution is off
from then on, for gradcheck too. So this module records such switches while modules are imported, and then
resets them. Functions of such a module are traced with its switches on, with two exceptions: eager execution
stays on around the trace, and variables that a function makes are resource variables, which a trace can read.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import sys
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli import hooks
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.tensorflow1 import private_v1
from gradcheck_cli.tensorflow_backend.graph_view import value_of
from gradcheck_cli.tensorflow_backend.users_code import seed_globals

_NEVER_SWITCH = {"tensorflow", "keras", "numpy"}  # nor do the standard library's modules
# Functions are called from an eager context and read variables as resources, whatever their module asks for.
_NOT_IN_CALLS = {"v2", "eager", "resource_variables"}


@dataclass(frozen=True)
class Switches:
    """The switches away from TensorFlow 2's behaviour that modules left on, and the graphs left open."""

    switches: dict[str, Any] = field(default_factory=dict)
    scene: private_v1.Scene | None = None

    def __or__(self, later: Switches) -> Switches:
        """Add what another module asks for after this one."""
        return Switches({**self.switches, **later.switches}, later.scene or self.scene)

    @property
    def turns_eager_off(self) -> bool:
        """Whether eager execution is off."""
        return "eager" in self.switches


_RECORDS: weakref.WeakKeyDictionary[ModuleType, Switches] = weakref.WeakKeyDictionary()
_NUMPY_CALLS = threading.RLock()  # switches are global; TensorFlow calls NumPy functions from threads


@dataclass
class _CaseSwitches:
    """What the code of one case asks for, and what its traces share."""

    caller: Switches  # what the program that calls gradcheck has switched
    requested: Switches
    is_tracing: bool = False
    variables: dict[tuple[str, tuple[Any, ...]], dict[Any, Any]] = field(default_factory=dict)  # by dtype
    values: dict[int, tuple[Any, ...]] = field(default_factory=dict)  # by id; the tensor and its value
    sessions: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # by id of a graph


_current = _CaseSwitches(Switches(), Switches())


class SwitchedBehaviour(hooks.Behaviour):
    """TensorFlow's behaviour as each module's own switches ask for it."""

    @property
    def turns_eager_off(self) -> bool:
        """Whether the code of this case, as far as it is loaded, turns eager execution off."""
        return _current.requested.turns_eager_off

    @contextlib.contextmanager
    def own(self) -> Iterator[None]:
        """Run under TensorFlow 2's behaviour; a caller's switches count as its modules' own."""
        global _current  # noqa: PLW0603 (the switches are global to the process, too)
        switches, scene = private_v1.switches(), private_v1.scene()
        outer = _current
        is_own = _differences(switches) == {} and scene.is_eager
        if not is_own:
            requested = outer.caller | Switches(_differences(switches), scene)
            _current = _CaseSwitches(requested, requested)
            private_v1.set_switches(private_v1.OWN)
            private_v1.set_scene(private_v1.own_scene())
        try:
            yield
        finally:
            if not is_own:
                private_v1.set_switches(switches)
                private_v1.set_scene(scene)
            _current = outer

    @contextlib.contextmanager
    def case(self) -> Iterator[None]:
        """Start with only the caller's switches; modules that are loaded within add theirs."""
        global _current  # noqa: PLW0603 (as above)
        outer = _current
        _current = _CaseSwitches(outer.caller, outer.caller)
        try:
            yield
        finally:
            _current = outer

    def import_module(self, name: str) -> None:
        """Import a module and reset the switches that it turns: they are for its own functions."""
        parts = name.split(".")
        names = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
        if name not in sys.modules:
            with _restore_switches(), _watch_imports():
                if _current.caller.switches:
                    _apply(_current.caller)
                for module_name in names:
                    if module_name in sys.modules:
                        _replay([module_name])
                    else:
                        __import__(module_name)
        for module_name in names:
            _current.requested |= _RECORDS.get(sys.modules[module_name], Switches())

    def wrap_numpy(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a NumPy function to run under its module's switches; it may use that module's session."""

        def call(*args: Any, **keywords: Any) -> Any:
            requested = _current.requested
            if not requested.switches:
                return function(*args, **keywords)
            with _NUMPY_CALLS, _restore_switches():
                _apply(requested)
                return function(*args, **keywords)

        return call

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """Call the case's code with its modules' switches."""
        requested = _current.requested.switches
        before = private_v1.switches()
        kept = {name: value for name, value in requested.items() if name not in _NOT_IN_CALLS}
        private_v1.set_switches(kept)
        try:
            yield
        finally:
            private_v1.set_switches(before)

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace the case's functions with their modules' switches."""
        case = _current
        if case.is_tracing:
            yield
            return
        scene, requested = case.requested.scene, case.requested.switches
        case.is_tracing = True
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(self.calling())
                stack.enter_context(private_v1.capture_values(_value_of))
                stack.enter_context(private_v1.differentiate_defuns())
                stack.enter_context(private_v1.register_anew())
                if scene is not None and scene.default_graph is not None:
                    stack.enter_context(private_v1.redirect_default_graph(scene.default_graph))
                if requested.get("control_flow") is False:
                    stack.enter_context(private_v1.pass_overrides_to_bodies())
                if requested:
                    stack.enter_context(tf.variable_creator_scope(_make_variable))
                # A tf.function stays one, whether or not functions run eagerly elsewhere.
                private_v1.set_switches({"functions_eagerly": False})
                yield
        finally:
            case.is_tracing = False


BEHAVIOUR = SwitchedBehaviour()


def _differences(switches: dict[str, Any], since: dict[str, Any] = private_v1.OWN) -> dict[str, Any]:
    return {name: value for name, value in switches.items() if value != since[name]}


@contextlib.contextmanager
def _restore_switches() -> Iterator[None]:
    """Give each import its own default graph, and reset every switch afterwards."""
    switches, scene = private_v1.switches(), private_v1.scene()
    private_v1.set_scene(private_v1.own_scene())
    try:
        yield
    finally:
        private_v1.set_switches(switches)
        private_v1.set_scene(scene)


def _apply(requested: Switches) -> None:
    private_v1.set_switches(requested.switches)
    if requested.turns_eager_off:
        private_v1.set_scene(private_v1.graph_scene(requested.scene or private_v1.own_scene()))


@contextlib.contextmanager
def _watch_imports() -> Iterator[None]:
    """Record the switches of the modules that are imported within.

    If a module imports one that was already imported for an earlier case, that one's recorded switches count
    again, as they would in a program of its own.
    """
    original = builtins.__import__

    def record_switches(
        name: str,
        globals: Any = None,  # noqa: A002 (Python's name for it)
        locals: Any = None,  # noqa: A002 (as above)
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        root = name.partition(".")[0]
        if level == 0 and (root in sys.stdlib_module_names or root in _NEVER_SWITCH):
            return original(name, globals, locals, fromlist, level)
        before = private_v1.switches()
        names = _imported_names(name, globals, fromlist, level)
        loaded = [module_name for module_name in names if module_name in sys.modules]
        result = original(name, globals, locals, fromlist, level)
        now = private_v1.switches()
        _replay(loaded)
        if now != before:
            switches = Switches(_differences(now, before), private_v1.scene())
            for module_name in names:
                if module_name not in loaded and module_name in sys.modules:
                    _RECORDS[sys.modules[module_name]] = switches
        return result

    builtins.__import__ = record_switches
    try:
        yield
    finally:
        builtins.__import__ = original


def _replay(names: list[str]) -> None:
    for module_name in names:
        requested = _RECORDS.get(sys.modules[module_name])
        if requested is not None:
            _apply(requested)


def _imported_names(name: str, names: Any, fromlist: Any, level: int) -> list[str]:
    """Return the absolute names of the modules that an import statement may load."""
    if level:
        package = (names or {}).get("__package__") or ""
        try:
            name = importlib.util.resolve_name("." * level + name, package)
        except ImportError:  # it is about to be raised
            return []
    parts = name.split(".")
    packages = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return packages + [f"{name}.{attribute}" for attribute in fromlist or ()]


def _make_variable(make: Callable[..., Any], **keywords: Any) -> Any:
    """Make a variable once for all traces of a case: TensorFlow 1 code makes them while it is traced."""
    name = str(keywords.get("name"))
    initial = keywords.get("initial_value")
    if private_v1.is_function_tensor(initial):
        keywords["initial_value"] = value_of(initial)
    keywords["use_resource"] = True
    with seed_globals(zlib.crc32(name.encode())):  # the same in each process, whatever was made before
        variable = make(**keywords)
    by_dtype = _current.variables.setdefault((name, tuple(variable.shape.as_list() or ())), {})
    if by_dtype and variable.dtype not in by_dtype:
        raise CaseFailedError(
            "forward",
            f"the variable {variable.name!r} has the input's dtype: in another one, it is another variable.",
        )
    return by_dtype.setdefault(variable.dtype, variable)


def _value_of(tensor: Any) -> Any:
    """Return the value of a tensor that a module made in its graph when it was imported.

    Raises:
        CaseFailedError: of kind "forward": it can't be evaluated.
    """
    entry = _current.values.get(id(tensor))
    if entry is None:
        with tf.init_scope():
            entry = _current.values[id(tensor)] = _evaluate(tensor)
    return entry[-1]


def _evaluate(tensor: Any) -> tuple[Any, ...]:
    """Return the tensor, an object to keep alive with it, and its value; a variable's is its handle."""
    variable = private_v1.variable_of_handle(tensor) if tensor.dtype == tf.resource else None
    subject = f"the forward uses {tensor.name!r}, which its module made as it was imported, and which"
    if tensor.dtype == tf.resource and variable is None:
        raise CaseFailedError("forward", f"{subject} is a resource: it can't be used in another graph.")
    try:
        value = _read(tensor if variable is None else variable, tensor.graph)
    except tf.errors.OpError as error:
        raise CaseFailedError(
            "forward",
            f"{subject} can't be evaluated: {str(error.message).splitlines()[0]} Take what it depends on as "
            "an argument.",
        ) from error
    if variable is None:
        return tensor, tf.constant(value, tensor.dtype)
    copy = tf.Variable(value, name=variable.op.name, trainable=variable.trainable)
    return tensor, copy, copy.handle


def _read(tensor: Any, graph: Any) -> np.ndarray[Any, Any]:
    """Evaluate in the session that the module has open, or in a new one with initialised variables."""
    for session in _sessions_of(graph):
        with contextlib.suppress(tf.errors.FailedPreconditionError):  # it has uninitialised variables
            return np.asarray(session.run(tensor))
    if id(graph) not in _current.sessions:
        _current.sessions[id(graph)] = (graph, private_v1.new_session(graph))
    return np.asarray(_current.sessions[id(graph)][1].run(tensor))


def _sessions_of(graph: Any) -> list[Any]:
    scene = _current.requested.scene
    sessions = [] if scene is None else list(scene.sessions)
    for module in list(_RECORDS):
        sessions += [value for value in list(vars(module).values()) if private_v1.is_session(value)]
    return [session for session in sessions if session.graph is graph]
