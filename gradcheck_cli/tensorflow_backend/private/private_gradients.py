"""All reliance on TensorFlow's private parts that show how an op is differentiated, and by whose function.

TensorFlow doesn't keep the name of the function that a custom gradient belongs to. So the functions that make
one are wrapped here (`note_sites`), and the gradient function can be traced back to the user's lines.
`tests/tensorflow_backend/test_private_sites.py` and `tests/acceptance/test_blame.py` fail where one changes.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import os
import re
import sys
import sysconfig
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.autograph.impl import api as autograph_api
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import function as functions
from tensorflow.python.framework import ops, registry
from tensorflow.python.ops import custom_gradient, gradients_util
from tensorflow.python.ops.custom_gradient import Bind

from gradcheck_cli import visible
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.gate import GradientRun
from gradcheck_cli.plain_files import GENERATED, short_path
from gradcheck_cli.tensorflow_backend.dtypes import as_list, is_differentiable
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.private.private_graphs import CALLS, CONVERTED, replace_attributes

# Names under which TensorFlow, or gradcheck, registers a gradient at run time; no op type has a hyphen.
RUN_TIME_NAME = re.compile(r"(CustomGradient|PartitionedCall|StatefulPartitionedCall)-\d+|gradcheck_.*")
_IS_UNCOUNTED = contextvars.ContextVar("is_uncounted", default=False)


@dataclass(frozen=True)
class Visit:
    """One op that backpropagation called the gradient of."""

    op: Any
    # the incoming gradients, one for each output: a tensor, or none if no zeros could replace it
    upstreams: tuple[Any, ...]
    # the outgoing gradients, one for each input; `None` if the gradient function returns that
    gradients: tuple[Any, ...]


def _look_at_each_op(
    look: Callable[[Any, Any, Any], None],
) -> contextlib.AbstractContextManager[None]:
    """Call `look(op, upstreams, gradients)` for each op that `tf.gradients` visits in the block.

    Backpropagation goes on with the list of gradients, which `look` may change.
    """
    log = gradients_util._LogOpGradients

    def looking(op: Any, upstreams: Any, gradients: Any) -> Any:
        look(op, upstreams, gradients)
        return log(op, upstreams, gradients)

    return replace_attributes(gradients_util, _LogOpGradients=looking, _AsList=as_list)


@contextlib.contextmanager
def backward_log(is_on: bool) -> Iterator[list[Visit]]:  # noqa: FBT001 (a switch)
    """Record each op that `tf.gradients` visits in the block, in order from the outputs to the inputs.

    Each gradient becomes a tensor of its own, which can be fed in place of what the gradient function
    returned. What a gradient function itself differentiates (a loop's body, a `tf.gradients` in a custom
    gradient) isn't recorded; nothing is, unless it is on.
    """
    visits: list[Visit] = []
    if not is_on:
        yield visits
        return
    depth = 0
    helper = gradients_util._GradientsHelper

    def note(op: Any, upstreams: Any, gradients: Any) -> None:
        if depth == 1:
            for index, (tensor, gradient) in enumerate(zip(op.inputs, gradients, strict=False)):
                if isinstance(gradient, tf.Tensor | tf.IndexedSlices):
                    gradients[index] = tf.identity(dense(gradient, tensor))
            visits.append(Visit(op, tuple(upstreams), tuple(gradients)))

    def counting(*args: Any, **keywords: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            return helper(*args, **keywords)
        finally:
            depth -= 1

    with _look_at_each_op(note), replace_attributes(gradients_util, _GradientsHelper=counting):
        yield visits


def dense(gradient: Any, tensor: Any) -> Any:
    """Add up IndexedSlices into the input's shape; their own `dense_shape` may be missing."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    if tensor.dtype == tf.resource:  # a variable's handle has no shape; the slices have one
        return tf.convert_to_tensor(gradient)
    rows = tf.shape(tensor)[0]
    dense = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, rows)
    return tf.ensure_shape(dense, tensor.shape)


def exclude_from_count(function: Any) -> Any:
    """Wrap a gradient function so that nothing it calls is counted."""

    @functools.wraps(function)
    def uncounted(*args: Any, **keywords: Any) -> Any:
        token = _IS_UNCOUNTED.set(True)
        try:
            return function(*args, **keywords)
        finally:
            _IS_UNCOUNTED.reset(token)

    return uncounted


def from_number(gradient: Any, dtype: tf.DType) -> Any:
    """Return a gradient that is a Python number or a NumPy array as a tensor, and any other as it is.

    Under a tape, such a gradient trains like a tensor; `tf.gradients` would fail to read its name.
    """
    is_number = isinstance(gradient, int | float | complex | np.ndarray | np.generic)
    # A variable's handle doesn't say the variable's dtype.
    return tf.constant(gradient, dtype) if is_number and dtype != tf.resource else gradient


def note_shape_faults(
    note: Callable[[Any, int, Any], None], spread: Callable[[Any, Any], Any]
) -> contextlib.AbstractContextManager[None]:
    """Replace gradients of another shape than their input by zeros, and note them; take numbers as tensors.

    TensorFlow stops at the first, so nothing would be known about the others.

    Args:
        note: is called with the op, the index of its input, and the gradient.
        spread: makes a tensor of hand-written IndexedSlices; it also gets their op's input.
    """

    def mend(op: Any, _: Any, gradients: list[Any]) -> None:
        is_own = has_own_gradient(op)
        for input_index, (tensor, returned) in enumerate(zip(op.inputs, gradients, strict=False)):
            gradient = gradients[input_index] = from_number(returned, tensor.dtype)
            # A variable's handle has another shape than its gradient; TensorFlow ignores that.
            if tensor.dtype == tf.resource or not isinstance(gradient, tf.Tensor | tf.IndexedSlices):
                continue
            fits = gradient.shape.is_compatible_with(tensor.shape)
            if not is_differentiable(tensor.dtype):
                gradients[input_index] = gradient if fits else None  # a tape drops it, whatever its shape
                continue
            if fits and is_own and isinstance(gradient, tf.IndexedSlices):
                gradients[input_index] = spread(gradient, tensor)
                # What shape they claim may be known only now.
                fits = gradients[input_index].shape.is_compatible_with(tensor.shape)
            if not fits:
                note(op, input_index, gradients[input_index])
                gradients[input_index] = tf.zeros_like(tensor)

    return _look_at_each_op(mend)


@contextlib.contextmanager
def count_gradients(
    counts: Counter[str], ran: Callable[[str, Any, Any], None] = lambda *_: None
) -> Iterator[None]:
    """Count the calls of each registered gradient function in the block, by its registered name.

    Calls are counted in graphs, in the bodies of loops, branches and functions whose gradients are built in
    the block, and under tapes: each of these looks its function up here. Names that are made at run time (for
    a `tf.custom_gradient`, for calls of a tf.function, and by gradcheck) aren't op types and aren't counted.
    What the gradient function of a `tf.custom_gradient` differentiates itself isn't counted either:
    backpropagation doesn't go there.

    Args:
        counts: where they are counted.
        ran: is called for each call under any name, with the name, the function and the op.
    """
    original = registry.Registry.lookup

    def lookup(self: Any, name: str | bytes) -> Any:
        function = original(self, name)
        # An override's name is read from the op's attr, as bytes.
        shown = name.decode() if isinstance(name, bytes) else name
        if self is not ops.gradient_registry or function is None:
            return function
        unit = private_graphs.custom_gradient_behind(function)
        called = exclude_from_count(function) if unit is not None and unit.is_stepped_over else function
        is_op_type = not RUN_TIME_NAME.fullmatch(shown)

        @functools.wraps(function)
        def counted(*args: Any, **keywords: Any) -> Any:
            if is_op_type and not _IS_UNCOUNTED.get():
                counts[shown] += 1
            # A tape inside a gradient passes a stand-in without a graph.
            ran(shown, function, args[0] if args and isinstance(args[0], tf.Operation) else None)
            return called(*args, **keywords)

        return counted

    with replace_attributes(registry.Registry, lookup=lookup):
        yield


@contextlib.contextmanager
def differentiate_functions_anew() -> Iterator[None]:
    """Make each call of a tf.function in a graph build the gradient of its body, even if it was built before.

    The gradient is cached with the function, which may be as old as the process.
    """
    functions = concrete_function._DelayedRewriteGradientFunctions
    original = functions.forward_backward

    def anew(self: Any, num_doutputs: int | None = None) -> Any:
        self._cached_function_pairs.clear()
        return original(self, num_doutputs)

    with replace_attributes(functions, forward_backward=anew):
        yield


def has_own_gradient(op: Any) -> bool:
    """Whether an op carries an override, from `gradient_override_map` or from a `tf.custom_gradient`."""
    return bool(private_graphs.override_of(op.node_def))


def gradient_function(op: Any) -> Any | None:
    """Return the Python function that computes an op's gradient; for a `tf.custom_gradient`, the user's own.

    It is `None` for an op type that is registered as not differentiable, and for a Defun's body that
    TensorFlow differentiates itself.
    """
    unit = private_graphs.custom_gradient_of(op)
    if unit is not None:
        return unit.function
    try:
        return ops.get_gradient_function(op)
    except LookupError:
        pass
    defined = op.graph._get_function(op.type)
    return None if defined is None else getattr(defined, "python_grad_func", None)


def overriding_function(name: str) -> Any | None:
    """Return the function behind a gradient's registered name; for a `tf.custom_gradient`, the user's own."""
    unit = private_graphs.custom_gradient_named(name)
    return private_graphs.registered_gradient(name) if unit is None else unit.function


def source_place(file: str, line: int) -> tuple[str, int] | None:
    """Return the source of a line of AutoGraph's generated code; `None` for other code."""
    if GENERATED not in file:
        return None
    origins: dict[int, tuple[str, int]] = {}
    for converted in list(autograph_api._TRANSPILER._cache._cache.values()):
        for factory in converted.values():
            for generated, origin in (factory.source_map or {}).items():
                if generated.filename == file and generated.lineno >= line:
                    origins[generated.lineno] = (str(origin.loc.filename), int(origin.loc.lineno))
    # A function begins at its decorators. AutoGraph added some of them, which have no source.
    return origins[min(origins)] if origins else None


def names_of_gradients() -> list[str]:
    """Return the names in the gradient registry, without those that TensorFlow or gradcheck makes."""
    return [name for name in list(ops.gradient_registry.list()) if not RUN_TIME_NAME.fullmatch(name)]


def custom_gradient_under(value: object) -> Any | None:
    """Return what `tf.custom_gradient` made of a function; `None` if calling `value` goes through none.

    It is an instance of `Bind`, which is made nowhere else. tf.function and other decorators keep it as
    `__wrapped__`.
    """
    for _ in range(100):  # a `__wrapped__` that leads in a circle ends here
        if isinstance(value, Bind):
            return value
        # Static: another package's module may hold lazy modules and proxies that answer to every name.
        value = inspect.getattr_static(value, "__wrapped__", None)
        if value is None:
            return None
    return None


# Where custom gradients are written: those that are made, and those that backpropagation calls.

_DEEPEST = 4  # functions in closures of functions: a decorator's wrapper holds one, that another
_MOST_FRAMES = 12  # lines that asked for a gradient: enough to leave a library's wrapper
# With a separator: tensorflow_probability isn't TensorFlow.
_OWN = f"{Path(__file__).parents[2]}{os.sep}"
# Where each check starts: its callers have nothing to do with what is checked.
_START = str(Path(_OWN) / "running" / "session.py")
_TENSORFLOW = f"{Path(tf.__file__).parent}{os.sep}"
_SKIPPED = (_TENSORFLOW, _OWN)
_STANDARD = sysconfig.get_path("stdlib")
_VECTORIZED = str(Path("parallel_for", "control_flow_ops.py"))
_DIFFERENTIATING = {"_GradientsHelper", "gradient", "jacobian", "batch_jacobian"}
_IMPORTING = "<frozen importlib._bootstrap>"


_TAKEN_BY_NONE = "no output that has a gradient takes its result"


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
    # those that the forward called, each with why backpropagation may not meet the call; empty: it may
    lost: dict[GradientSite, str] = field(default_factory=dict)
    # names that were registered for graphs of the case alone
    registered: list[str] = field(default_factory=list)

    def add(self, site: GradientSite, label: str) -> None:
        """Record that a gradient ran for a pair, by its label."""
        self.ran.setdefault(site, set()).add(label)

    def unrun(self, *, has_integers: bool) -> list[str]:
        """Say which custom gradients were called where backpropagation didn't meet them, and why.

        Args:
            has_integers: whether some output has no gradient, so that calls may be for it alone.
        """
        return [
            f"{site.function} ({site.places[0]}): {why}"
            for site, why in self.lost.items()
            if why and site not in self.ran and site.places and (has_integers or why != _TAKEN_BY_NONE)
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
    return noted or GradientSite(name_of(function), tuple(_places(function)))


@contextlib.contextmanager
def note_sites(log: GradientLog) -> Iterator[None]:
    """Record custom gradients in a log when they are made in the block, and where.

    What TensorFlow registers for the case's graphs is taken back at the end: it would keep each of them.
    """

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
        (ops.RegisterGradient, "__call__", functools.partial(_wrap_register, make, log)),
        (functions.Defun, "__init__", functools.partial(_wrap_defun, make)),
        (ops.Graph, "gradient_override_map", functools.partial(_wrap_override_map, log)),
    ]
    with contextlib.ExitStack() as replaced:
        for owner, name, hook in hooks:
            # AutoGraph would convert a hook that the user's code calls.
            hooked = tf.autograph.experimental.do_not_convert(hook(getattr(owner, name)))
            replaced.enter_context(private_graphs.replace_attributes(owner, **{name: hooked}))
        try:
            yield
        finally:
            for name in log.registered:
                ops.gradient_registry._registry.pop(name, None)
                _RAN.pop(name, None)


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
            site = site_of(getattr(function, "__func__", function))
            # Backpropagation steps over a custom gradient that is called inside of another one's forward.
            why = _why_lost() if depth == 0 and _is_users(function) else ""
            if why:
                log.lost[site] = log.lost.get(site, why) if why == _TAKEN_BY_NONE else why
            _require_gradient_function(function, result)
            gradient = _require_gradients_of_variables(result[1])
            for each in (result[1], gradient):
                _put(_BY_GRADIENT, each, site)
            return result[0], gradient

        return original(noting, args, keywords)

    return call


def is_pair(returned: Any) -> bool:
    """Whether two things were returned: results and gradient, or gradients of arguments and of variables."""
    return isinstance(returned, tuple | list) and len(returned) == 2  # noqa: PLR2004 (a pair)


def _require_gradient_function(function: Any, result: Any) -> None:
    """Refuse what TensorFlow would take apart, or call, with an error that names neither."""
    if not is_pair(result) or not callable(result[1]):
        parts = result if isinstance(result, tuple | list) else [result]
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise CaseFailedError(
            "forward",
            f"the tf.custom_gradient{place_of_gradient(function)} must return its result and a gradient "
            f"function, (y, grad), but returned ({kinds}).",
        )


def _require_gradients_of_variables(gradient: Any) -> Any:
    """Let a gradient function that takes `variables` refuse to return anything but two things."""
    try:
        signature = inspect.signature(gradient)
    except (TypeError, ValueError):  # no Python function, and TensorFlow says so
        return gradient

    @functools.wraps(gradient)
    def call(*upstreams: Any, **keywords: Any) -> Any:
        returned = gradient(*upstreams, **keywords)
        count = len(keywords.get("variables") or ())
        fault = _describe_count(returned, count) if count else ""
        if fault:
            raise CaseFailedError(
                "gradient_count",
                f"a custom gradient{place_of_gradient(gradient)} must return (gradients of its arguments, "
                f"[gradients of its {visible.count(count, 'variable')}]), but returned {fault}.",
            )
        return returned

    # TensorFlow looks there for `variables`; `custom_gradient_behind` finds what the user wrote.
    call.__dict__.update(__signature__=signature, **{private_graphs.USERS_GRADIENT: gradient})
    return call


def place_of_gradient(gradient: Any) -> str:
    """Return " at file:line" of a gradient function; empty if it isn't Python code."""
    return next((f" at {place}" for place in site_of(gradient).places), "")


def _describe_count(returned: Any, count: int) -> str:
    """Say what a gradient function returned instead of those of its arguments and those of its variables."""
    if not is_pair(returned):
        return visible.count(len(as_list(returned)), "value")
    if not isinstance(returned[1], list):  # TensorFlow appends it to a list
        return "no list of those of variables"
    return "" if len(returned[1]) == count else f"{visible.count(len(returned[1]), 'gradient')} of variables"


def _why_lost() -> str:
    """Return why backpropagation may not meet a custom gradient that is called now; empty in a gradient."""
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
    return why or _TAKEN_BY_NONE


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


def _wrap_register(make: Callable[[Any], None], log: GradientLog, original: Any) -> Callable[..., Any]:
    def register(self: Any, function: Any) -> Any:
        name = str(self._op_type)
        if not RUN_TIME_NAME.fullmatch(name):
            make(function)
        # A tf.function that the user's code calls is kept for longer.
        elif name.startswith("gradcheck_") or ("Call-" not in name and private_graphs.is_in_own_trace()):
            log.registered.append(name)
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


def _wrap_override_map(log: GradientLog, original: Any) -> Callable[..., Any]:
    @contextlib.contextmanager
    def override(self: Any, op_type_map: Any) -> Iterator[None]:
        names = [str(name) for name in dict(op_type_map).values() if not RUN_TIME_NAME.fullmatch(str(name))]
        makers = _makers(_callers())
        _OVERRIDES.update(dict.fromkeys(names, makers))
        before = len(self.get_operations())
        with original(self, op_type_map):
            yield
        made = self.get_operations()[before:]
        if names and makers:
            functions = map(private_graphs.registered_gradient, names)
            pairs = zip(names, functions, strict=True)
            labels = [name_of(function) if function else name for name, function in pairs]
            eager = " in eager mode" * tf.executing_eagerly()
            site = GradientSite(", ".join(labels) + eager, makers[:1])
            nodes = [op.node_def for op in made]
            if any(map(private_graphs.function_names, nodes)):  # TensorFlow 1's loops inherit the override
                nodes += [node for body in self.as_graph_def().library.function for node in body.node_def]
            is_carried = any(private_graphs.override_of(node) in names for node in nodes)
            why = f"no op of type {' or '.join(op_type_map)} was made under its gradient_override_map"
            # Once carried, it was called elsewhere for another purpose.
            log.lost[site] = "" if is_carried else log.lost.get(site, why)

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
        makers = _OVERRIDES.get(name, ()) if op is not None and has_own_gradient(op) else ()
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
    if not any(op.type in CALLS for op in graph.get_operations()):
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


def keep_site(function: Any, wrapper: Any) -> None:
    """Let a wrapper of a function that a gradient belongs to have that function's site."""
    site = _get(_MADE, function)
    if site is not None:
        _put(_MADE, wrapper, site)


def _get(sites: weakref.WeakKeyDictionary[Any, GradientSite], key: Any) -> GradientSite | None:
    try:
        return sites.get(key)
    except TypeError:  # it can't be referred to weakly, or can't be hashed
        return None


def _put(sites: weakref.WeakKeyDictionary[Any, GradientSite], key: Any, site: GradientSite) -> None:
    with contextlib.suppress(TypeError):
        sites[key] = site


def name_of(function: Any) -> str:
    """Return a function's `module:qualname`, without what AutoGraph adds."""
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
    origin = source_place(file, line)  # AutoGraph's generated code has its own files
    file, line = origin or (file, line)
    return f"{short_path(file)}:{line}"
