"""Imports the user's functions, and runs each module's code under the TensorFlow behaviour that it asks for.

Functions, `module:attribute`, may also lie beside the spec or in the working directory.

`tf.compat.v1.disable_v2_behavior()` at the top of a module changes the whole process: eager execution is off
from then on, for gradcheck too. So this module records such switches while modules are imported, and then
resets them. Functions of such a module are traced with its switches on, with two exceptions: eager execution
stays on around the trace, and variables that a function makes are resource variables, which a trace can read.
"""

from __future__ import annotations

import builtins
import contextlib
import difflib
import importlib
import importlib.util
import os
import random
import sys
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.plain_files import short_path
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.private import private_state, private_v1

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


@contextlib.contextmanager
def use_tensorflow_2() -> Iterator[None]:
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
def begin_case() -> Iterator[None]:
    """Start with only the caller's switches; modules that are loaded within add theirs."""
    global _current  # noqa: PLW0603 (as above)
    outer = _current
    _current = _CaseSwitches(outer.caller, outer.caller)
    try:
        yield
    finally:
        _current = outer


def _differences(switches: dict[str, Any], since: dict[str, Any] = private_v1.OWN) -> dict[str, Any]:
    return {name: value for name, value in switches.items() if value != since[name]}


def import_module(name: str) -> ModuleType:
    """Import a module and reset the switches that it turns: they are for its own functions.

    Raises:
        Exception: whatever the module raises when it is imported.
    """
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
    return sys.modules[name]


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


def turns_eager_off() -> bool:
    """Whether the code of this case, as far as it is loaded, turns eager execution off."""
    return _current.requested.turns_eager_off


def functions_without_eager(function: Callable[..., Any]) -> Callable[..., Any]:
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
def run_with_switches() -> Iterator[None]:
    """Call the case's code with its modules' switches, in eager mode or for a function that is traced."""
    requested = _current.requested.switches
    before = private_v1.switches()
    private_v1.set_switches({name: value for name, value in requested.items() if name not in _NOT_IN_CALLS})
    try:
        yield
    finally:
        private_v1.set_switches(before)


@contextlib.contextmanager
def trace_with_switches() -> Iterator[None]:
    """Trace the case's functions with their modules' switches."""
    case = _current
    if case.is_tracing:
        yield
        return
    scene, requested = case.requested.scene, case.requested.switches
    case.is_tracing = True
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(run_with_switches())
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


def _make_variable(make: Callable[..., Any], **keywords: Any) -> Any:
    """Make a variable once for all traces of a case: TensorFlow 1 code makes them while it is traced."""
    name = str(keywords.get("name"))
    initial = keywords.get("initial_value")
    if private_v1.is_function_tensor(initial):
        keywords["initial_value"] = private_v1.value_in_function(initial)
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


@contextlib.contextmanager
def seed_globals(seed: int) -> Iterator[None]:
    """Seed the global generators of Python (which Keras uses), NumPy and TensorFlow; restore them afterwards.

    Keras starts counting the names of its layers again, so that a variable has the same name in every mode.
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (the global one, as users use it)
    with private_state.restore_seed(), private_state.reset_keras_names():
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 (as above)
        tf.random.set_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002 (as above)


# How functions are imported.

# Never forgotten, even if the working directory is a checkout of it: otherwise two copies of it would run.
_OWN = __name__.partition(".")[0]


@contextmanager
def importable(folder: str) -> Iterator[None]:
    """Put the spec's folder and the working directory in front of the import path while the block runs.

    A module of the same name from another spec's folder is forgotten first, so each spec gets the code beside
    it, whatever ran before.
    """
    before = list(sys.path)
    front = [folder, str(Path.cwd())]
    sys.path[:0] = front
    _forget_namesakes(front)
    importlib.invalidate_caches()
    try:
        with begin_case():
            yield
    finally:
        sys.path[:] = before


def _forget_namesakes(front: list[str]) -> None:
    """Drop the top-level modules, with their submodules, that `front` would now find in another place."""
    # This runs for each case. The folders hold a few names, but hundreds of modules are imported.
    local_modules: dict[str, Path] = {}
    for folder in front:
        local_modules = {**_modules_in(folder), **local_modules}
    for name in local_modules.keys() & sys.modules.keys() - {_OWN}:
        file = getattr(sys.modules[name], "__file__", None)
        origin = Path(file).resolve() if isinstance(file, str) else None
        if origin is None or local_modules[name].resolve() == origin or is_installed(origin):
            continue
        for stale in [
            module_name
            for module_name in sys.modules
            if module_name == name or module_name.startswith(f"{name}.")
        ]:
            del sys.modules[stale]


def _modules_in(folder: str) -> dict[str, Path]:
    """Return the file of each top-level module in a folder, by name; a package comes before a module."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except OSError:  # it was deleted; the import will say so
        return {}
    modules = {name.removesuffix(".py"): Path(folder, name) for name in names if name.endswith(".py")}
    # Only modules that are already imported matter, and few of them are folders.
    for name in names:
        package = Path(folder, name, "__init__.py")
        if name in sys.modules and package.is_file():
            modules[name] = package
    return modules


def is_installed(path: Path) -> bool:
    """Whether a file belongs to the interpreter or an installed package: such modules are never replaced."""
    return "site-packages" in path.parts or str(path).startswith(str(Path(os.__file__).resolve().parent))


def load(target: str, role: str) -> Any:
    """Import what `module:attribute` names.

    Raises:
        CaseFailedError: of kind "import" or "attribute".
    """
    module_name, _, attribute = target.partition(":")
    module = _import(module_name, role)
    value: Any = module
    for position, name in enumerate(attribute.split(".")):
        try:
            value = getattr(value, name)
        except AttributeError:
            holder = ".".join([module_name, *attribute.split(".")[:position]])
            near = difflib.get_close_matches(
                name, [other for other in dir(value) if not other.startswith("__")], n=1
            )
            hint = f" Did you mean {near[0]!r}?" if near else ""
            if moved := _modules_with(module_name, attribute):
                hint = f" It is in {' and in '.join(moved)} now: write {moved[0]}:{attribute}."
            file = getattr(module, "__file__", None)
            where = short_path(file) if file else "a built-in module"
            raise CaseFailedError(
                "attribute", f"{role}: {holder!r} ({where}) has no attribute {name!r}.{hint}"
            ) from None
    if not callable(value):
        raise CaseFailedError(
            "attribute", f"{role}: {target!r} must be callable, but is of type {type(value).__name__}."
        )
    return value


def _modules_with(module_name: str, attribute: str) -> list[str]:
    """Return the imported modules of the same package that define a function or class of this name."""
    package = module_name.partition(".")[0]
    return [
        name
        for name, module in sorted(sys.modules.items())
        if name.partition(".")[0] == package
        and name != module_name
        and getattr(vars(module).get(attribute), "__module__", None) == name
    ]


def _layout_hint(name: str) -> str:
    """Say what helps if a module lies in `src/`, or above the spec as in a monorepo; empty elsewhere."""
    top, here = name.partition(".")[0], Path.cwd()
    above = [folder for folder in Path(sys.path[0]).absolute().parents if here in folder.parents]
    for folder in (here / "src", *above, *(folder / "src" for folder in above)):
        if (folder / top).is_dir() or (folder / f"{top}.py").is_file():
            path = short_path(str(folder))
            return f"{path}/ has {top}: install the project (pip install -e .), or set PYTHONPATH={path}.\n"
    return ""


def _places() -> list[str]:
    """Return where modules are looked for: folders of the user's, then the rest in one word."""
    folders = [Path(entry or ".").absolute() for entry in sys.path]
    python = Path(sys.executable).parent
    own = [
        folder
        for folder in folders
        if folder.is_dir() and not (is_installed(folder) or folder.is_relative_to(python))
    ]
    return [*dict.fromkeys(short_path(str(folder)) for folder in own), "the installed packages"]


def _import(name: str, role: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            looked = "\n".join(f"  {place}" for place in _places())
            raise CaseFailedError(
                "import",
                f"{role}: no module named {error.name!r}; looked in:\n{looked}\n{_layout_hint(name)}"
                "Put the module beside the spec, run from its folder, or install it.",
            ) from None
        raise CaseFailedError(
            "import",
            f"{role}: importing {name!r} failed: {frames.first_line(error)}. Install what it imports.",
            frames.user_frames(error),
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (a module may raise anything when it is imported)
        raise CaseFailedError(
            "import",
            f"{role}: importing {name!r} failed: {frames.first_line(error)}",
            frames.user_frames(error) or _syntax_place(error),
        ) from None


def _syntax_place(error: BaseException) -> tuple[str, ...]:
    if isinstance(error, SyntaxError) and error.filename:
        return (f"{short_path(error.filename)}:{error.lineno}: {(error.text or '').strip()}",)
    return ()
