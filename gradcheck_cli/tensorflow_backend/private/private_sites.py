"""Where custom gradients are written: records those that are made, and those that backpropagation calls.

TensorFlow doesn't keep the name of the function that a custom gradient belongs to. So the functions that make
one are wrapped here, and the gradient function can be traced back to the user's lines.
`tests/tensorflow_backend/test_private_sites.py` tests the parts of TensorFlow that this relies on.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import function as functions
from tensorflow.python.framework import ops
from tensorflow.python.ops import custom_gradient

from gradcheck_cli.gate import GradientRun
from gradcheck_cli.plain_files import short_path
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import CONVERTED

_DEEPEST = 4  # functions in closures of functions: a decorator's wrapper holds one, that another
_MOST_FRAMES = 12  # lines that asked for a gradient: enough to leave a library's wrapper
# With a separator: tensorflow_probability isn't TensorFlow.
_OWN = f"{Path(__file__).parents[2]}{os.sep}"
# Where each check starts: its callers have nothing to do with what is checked.
_START = str(Path(_OWN) / "running" / "session.py")
_TENSORFLOW = f"{Path(tf.__file__).parent}{os.sep}"
_SKIPPED = (_TENSORFLOW, _OWN)
_STANDARD = sysconfig.get_path("stdlib")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_VECTORIZED = str(Path("parallel_for", "control_flow_ops.py"))
_DIFFERENTIATING = {"_GradientsHelper", "gradient", "jacobian", "batch_jacobian"}
_IMPORTING = "<frozen importlib._bootstrap>"


@dataclass(frozen=True)
class GradientSite:
    """Where a custom gradient is written; see `GradientRun`. `by_import`: an import made it."""

    function: str
    places: tuple[str, ...]
    makers: tuple[str, ...] = ()
    by_import: bool = False

    def as_run(self, pairs: Iterable[str] = ()) -> GradientRun:
        """Return its record as a gradient that a case made, or that ran for some pairs."""
        return GradientRun(self.function, self.places, self.makers, tuple(sorted(pairs)))


@dataclass
class GradientLog:
    """The custom gradients that one case made, and those that ran, by the labels of the pairs."""

    made: set[GradientSite] = field(default_factory=set)
    ran: dict[GradientSite, set[str]] = field(default_factory=dict)
    lost: dict[GradientSite, str] = field(
        default_factory=dict
    )  # calls that backpropagation may never meet, with why

    def add(self, site: GradientSite, label: str) -> None:
        """Record that a gradient ran for a pair, by its label."""
        self.ran.setdefault(site, set()).add(label)

    def unrun(self) -> list[str]:
        """Say which custom gradients were called where backpropagation didn't meet them, and why."""
        return [
            f"{site.function} ({site.places[0]}): {why}"
            for site, why in self.lost.items()
            if site not in self.ran and site.places
        ]

    def runs(self) -> tuple[GradientRun, ...]:
        """Return what ran, and what a call made that didn't run; what an import makes needn't run."""
        rest = [site for site in self.made if site not in self.ran and not site.by_import]
        gradient_runs = [
            *(site.as_run(pairs) for site, pairs in self.ran.items()),
            *(site.as_run() for site in rest),
        ]
        return tuple(sorted(gradient_runs, key=lambda run: (run.function, run.places)))


# Kept for the process: a module is imported once, and its gradients run in any case that calls them.
_MADE: weakref.WeakKeyDictionary[Any, GradientSite] = (
    weakref.WeakKeyDictionary()
)  # by what was passed to the maker
_BY_GRADIENT: weakref.WeakKeyDictionary[Any, GradientSite] = (
    weakref.WeakKeyDictionary()
)  # by what backprop calls
_OVERRIDES: dict[str, tuple[str, ...]] = {}  # lines with a gradient_override_map, by the registered name
_RAN: dict[
    str, GradientSite
] = {}  # by the registered name: what was differentiated once isn't differentiated again


def site_of(function: Any) -> GradientSite:
    """Return where a function that a gradient belongs to, or a gradient function, is written."""
    noted = _get(_MADE, function)
    function = private_graphs.users_function(function)
    return noted or GradientSite(_name_of(function), tuple(_places(function)))


@contextlib.contextmanager
def note_sites(log: GradientLog) -> Iterator[None]:
    """Record custom gradients in a log when they are made in the block, and where."""

    def make(function: Any) -> None:
        function = getattr(function, "__func__", function)
        if is_tensorflows(function):
            return
        frames = list(_callers())
        # A method is made anew at each access: the place where it was first made counts.
        site = _get(_MADE, function) or replace(
            site_of(function), makers=_makers(frames), by_import=_IMPORTING in {file for file, _ in frames}
        )
        _put(_MADE, function, site)
        log.made.add(site)

    hooks: list[tuple[Any, str, Callable[[Any], Any]]] = [
        (custom_gradient, "_graph_mode_decorator", functools.partial(_wrap_decorator, log)),
        (custom_gradient, "_eager_mode_decorator", functools.partial(_wrap_decorator, log)),
        (custom_gradient.Bind, "__init__", functools.partial(_wrap_bind, make)),
        (ops.RegisterGradient, "__call__", functools.partial(_wrap_register, make)),
        (functions.Defun, "__init__", functools.partial(_wrap_defun, make)),
        (ops.Graph, "gradient_override_map", _wrap_override_map),
    ]
    with contextlib.ExitStack() as replaced:
        for owner, name, hook in hooks:
            # AutoGraph would convert a hook that the user's code calls.
            hooked = tf.autograph.experimental.do_not_convert(hook(getattr(owner, name)))
            replaced.enter_context(private_graphs.replace_attributes(owner, **{name: hooked}))
        yield


def _wrap_decorator(log: GradientLog, original: Any) -> Callable[..., Any]:
    """Let the gradient function that a custom gradient makes be traced back to its function."""
    depth = 0

    def call(function: Any, args: Any, keywords: Any) -> Any:
        @functools.wraps(function)
        def noting(*inner: Any, **keyed: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                result = function(*inner, **keyed)
            finally:
                depth -= 1
            # Backpropagation steps over a custom gradient that is called inside of another one's forward.
            why = _why_lost() if depth == 0 and _is_users(function) else ""
            if why:
                log.lost[site_of(getattr(function, "__func__", function))] = why
            if isinstance(result, tuple | list) and len(result) == 2:  # noqa: PLR2004 (results, gradient)
                _put(_BY_GRADIENT, result[1], site_of(getattr(function, "__func__", function)))
            return result

        return original(noting, args, keywords)

    return call


def _why_lost() -> str:
    """Return why backpropagation may never meet a custom gradient that is called now; empty if it will."""
    frame: Any = sys._getframe(2)
    why = ""
    while frame is not None and frame.f_code.co_filename != _START:
        file = frame.f_code.co_filename
        if frame.f_code.co_name in _DIFFERENTIATING and file.startswith(_TENSORFLOW):
            return ""  # a gradient function calls it, so another pass of backpropagation
        if file.endswith(_VECTORIZED):
            why = why or "tf.vectorized_map drops custom gradients"
        elif not file.startswith(_SKIPPED) and _has_open_tape(frame):
            why = why or "the forward differentiates it by itself"
        frame = frame.f_back
    return why


def _has_open_tape(frame: Any) -> bool:
    """Whether a tape that the frame's code opened is recording."""
    return any(
        isinstance(value, tf.GradientTape) and value._recording for value in list(frame.f_locals.values())
    )


def _is_users(function: Any) -> bool:
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    return (
        code is not None and not code.co_filename.startswith(_SKIPPED) and "-packages" not in code.co_filename
    )


def _wrap_bind(make: Callable[[Any], None], original: Any) -> Callable[..., None]:
    def init(self: Any, function: Any, decorator: Any) -> None:
        original(self, function, decorator)
        make(function)

    return init


def _wrap_register(make: Callable[[Any], None], original: Any) -> Callable[..., Any]:
    def register(self: Any, function: Any) -> Any:
        if not private_gradients.RUN_TIME_NAME.fullmatch(str(self._op_type)):
            make(function)
        return original(self, function)

    return register


def _wrap_defun(make: Callable[[Any], None], original: Any) -> Callable[..., None]:
    def init(self: Any, *types: Any, **keywords: Any) -> None:
        gradient = keywords.get("python_grad_func")
        if gradient is not None:
            make(gradient)
            keywords["python_grad_func"] = _report_runs(gradient, site_of(gradient))
        original(self, *types, **keywords)

    return init


def _wrap_override_map(original: Any) -> Callable[..., Any]:
    def override(self: Any, op_type_map: Any) -> Any:
        for name in dict(op_type_map).values():
            if not private_gradients.RUN_TIME_NAME.fullmatch(str(name)):
                _OVERRIDES[str(name)] = _makers(_callers())
        return original(self, op_type_map)

    return override


_defun_calls: list[list[tuple[GradientSite, Any]]] = []  # each records the Defun gradients that run


def _report_runs(gradient: Any, site: GradientSite) -> Any:
    """Return a Defun's gradient function that reports its runs: TensorFlow calls it without looking it up."""

    @functools.wraps(gradient)
    def noting(op: Any, *upstreams: Any) -> Any:
        for ran in _defun_calls:
            ran.append((site, op))
        return gradient(op, *upstreams)

    return noting


@contextlib.contextmanager
def note_runs() -> Iterator[tuple[Callable[[str, Any, Any], None], list[tuple[GradientSite, Any]]]]:
    """Record each hand-written gradient that runs in the block.

    Yields:
        A function for `count_gradients` to call, and the list of the gradients that run, with their ops.
    """
    ran: list[tuple[GradientSite, Any]] = []

    def looked_up(name: str, function: Any, op: Any) -> None:
        custom = private_graphs.custom_gradient_named(name)
        # TensorFlow's own gradient of an op is nobody's, unless it replaces another one.
        makers = _OVERRIDES.get(name, ()) if op is not None and private_gradients.has_own_gradient(op) else ()
        if custom is None and not makers and is_tensorflows(function):
            return
        site = site_of(inspect.unwrap(function)) if custom is None else site_of_gradient(custom.function)
        site = replace(site, makers=(*site.makers, *makers))
        if site.places or site.makers:
            _RAN[name] = site
            ran.append((site, op))

    _defun_calls.append(ran)
    try:
        yield looked_up, ran
    finally:
        _defun_calls.pop()


def site_of_gradient(gradient: Any) -> GradientSite:
    """Return where a gradient function, or the function that it belongs to, is written, if that is known."""
    return _get(_BY_GRADIENT, gradient) or site_of(gradient)


def sites_inside(graph: Any) -> list[GradientSite]:
    """Return the gradients that ran when the functions that a graph calls were differentiated.

    A function is differentiated once per process, for the first case that calls it.
    """
    if not any(op.type in _CALLS for op in graph.get_operations()):
        return []
    library = graph.as_graph_def().library.function
    if not any("__backward" in function.signature.name for function in library):
        return []  # none of them is differentiated here
    nodes = [node for function in library for node in function.node_def]
    names = dict.fromkeys(name for node in nodes if (name := private_graphs.override_of(node)))
    return [_RAN[name] for name in names if name in _RAN]


def is_tensorflows(function: Any) -> bool:
    """Whether a function is part of TensorFlow, such as the one behind `tf.nn.silu`."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename.startswith(_TENSORFLOW)


def _get(sites: weakref.WeakKeyDictionary[Any, GradientSite], key: Any) -> GradientSite | None:
    try:
        return sites.get(key)
    except TypeError:  # it can't be referred to weakly, or can't be hashed
        return None


def _put(sites: weakref.WeakKeyDictionary[Any, GradientSite], key: Any, site: GradientSite) -> None:
    with contextlib.suppress(TypeError):
        sites[key] = site


def _name_of(function: Any) -> str:
    inner = getattr(function, "func", function)
    module = getattr(inner, "__module__", None) or type(inner).__module__
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    return f"{module}:{CONVERTED.sub('', name)}"


def _places(function: Any) -> Iterator[str]:
    """Yield where a function is written, then where the functions that it closes over are, each once."""
    codes: dict[CodeType, None] = {}
    waiting = [(function, 0)]
    while waiting:
        candidate, depth = waiting.pop(0)
        if isinstance(candidate, functools.partial):
            contents = (candidate.func, *candidate.args, *candidate.keywords.values())
            waiting += [(inner, depth + 1) for inner in contents]
            continue
        candidate = getattr(candidate, "__func__", candidate)
        if not isinstance(candidate, FunctionType) or candidate.__code__ in codes or depth > _DEEPEST:
            continue
        codes[candidate.__code__] = None
        for cell in candidate.__closure__ or ():
            with contextlib.suppress(ValueError):  # a cell that is still empty
                waiting.append((cell.cell_contents, depth + 1))
    for code in codes:
        if not code.co_filename.startswith(_SKIPPED):
            yield _show_place(code.co_filename, code.co_firstlineno)


def _callers() -> Iterator[tuple[str, int]]:
    """Yield file and line of the callers, up to gradcheck or an import, the innermost first.

    Lines of TensorFlow and of the standard library are left out.
    """
    frame: Any = sys._getframe(1)
    is_outside = False
    while frame is not None:
        file = frame.f_code.co_filename
        if file == _START or (is_outside and file.startswith(_OWN)):
            return
        if not file.startswith(_SKIPPED) and not _is_standard(file):
            is_outside = True
            yield file, frame.f_lineno
        if file == _IMPORTING:
            return
        frame = frame.f_back


@functools.cache
def _is_standard(file: str) -> bool:
    return file.startswith(_STANDARD) and "-packages" not in file


def _makers(frames: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    lines = [
        _show_place(*frame)
        for frame, _ in zip(frames, range(_MOST_FRAMES), strict=False)
        if frame[0] != _IMPORTING
    ]
    return tuple(lines)


def _show_place(file: str, line: int) -> str:
    origin = private_gradients.source_place(file, line)  # AutoGraph's generated code has its own files
    file, line = origin or (file, line)
    return f"{short_path(file)}:{line}"
