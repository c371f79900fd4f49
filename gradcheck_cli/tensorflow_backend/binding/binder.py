"""Binds a case's forward and gradient into one function of flat tensors, by each of the five bindings.

The function is called once for each trace, in a graph. The override that it carries is recorded, so that the
trace can tell whether it took effect. The user's gradient function is called as TensorFlow would call it, and
its results are checked first: TensorFlow lets a wrong dtype pass, and a float or an ndarray ends in
`AttributeError: ... 'name'`.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli import hooks
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.spec.case import Case, FunctionRef
from gradcheck_cli.tensorflow_backend import dtypes, frames, users_code
from gradcheck_cli.tensorflow_backend.binding.flat_tensors import (
    call_with,
    code_of_reference,
    create_raw_op,
    flat_arrays,
    flat_outputs,
    require_order,
    takes_build_alone,
)
from gradcheck_cli.tensorflow_backend.dtypes import as_list, shape_text
from gradcheck_cli.tensorflow_backend.op_types import PYTHON_CALLS
from gradcheck_cli.tensorflow_backend.private import private_graphs
from gradcheck_cli.tensorflow_backend.private.private_settings import bind_settings
from gradcheck_cli.visible import count

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Override:
    """A gradient that was attached by `gradient_override_map`, and the op types it was meant for."""

    name: str
    op_types: tuple[str, ...]


@dataclass(frozen=True)
class Bound:
    """A function of flat tensors that returns flat outputs, and the override it carries, if any.

    After a call, `backprop_starts` returns the tensors whose backward pass shows which `stop_gradient`s can
    be held. It is `None` where these are the outputs.
    """

    call: Callable[..., list[Any]]
    override: Override | None = None
    backprop_starts: Callable[[], Sequence[Any]] | None = None


@dataclass(frozen=True)
class Binder:
    """Binds a case, at its own dtypes or at others."""

    case: Case
    # maps a dtype that the spec names to the one that is traced: itself, or its reference
    dtype_of: Callable[[str], str] = str
    point: Sequence[
        np.ndarray[Any, Any]
    ] = ()  # the inputs' values, wide; a NumPy gradient is tried there once
    # as the forward returned them; `None` in the first trace
    output_shapes: Sequence[tuple[int, ...]] | None = None
    # which NumPy code was seen to write to which of its arrays, filled while it runs
    modified: list[str] = field(default_factory=list)
    # the outputs' names, from their paths in what is returned, filled while it runs
    names: list[str] = field(default_factory=list)
    # what `build` returned earlier, by target: a factory is called once per case
    built: dict[str, Any] = field(default_factory=dict)
    # the shape that a trace may know: the whole shape, or one with unknown dimensions
    shape_of: Callable[[Shape], Shape] = tuple

    def forward(self) -> Bound:
        """Bind forward and gradient.

        Raises:
            CaseFailedError: where a function can't be found.
        """
        bound = self._attach()
        return replace(bound, call=self._symmetrise_inputs(bound.call))

    def _attach(self) -> Bound:
        code = self.case.code
        if code.binding == "autodiff":
            return Bound(self._function())
        gradient = self._load_gradient()
        if code.binding == "custom_gradient":
            return Bound(self._custom_gradient(self._function(), gradient))
        if code.binding == "defun":
            return Bound(self._defun(gradient))
        name = unique_name(self.case.op)
        if code.binding == "py_func":
            override = Override(name, PYTHON_CALLS)
            body = self._py_func(self._load(code.forward, "forward"))
        else:
            override = Override(name, (str(code.op_type),))
            body = self._function()
        tf.RegisterGradient(override.name)(gradient)

        def overridden(*tensors: Any) -> list[Any]:
            mapping = dict.fromkeys(override.op_types, override.name)
            with tf.compat.v1.get_default_graph().gradient_override_map(mapping):
                return body(*tensors)

        return Bound(overridden, override)

    def load(self) -> None:
        """Import what the spec names, which shows under which of TensorFlow's behaviours it runs."""
        for ref, role in ((self.case.code.forward, "forward"), (self.case.code.gradient, "gradient")):
            if ref is not None:
                users_code.load(ref.target, role)

    def target(self) -> Any:
        """Return the forward as the user named it: a function, layer or module; `None` for a raw op."""
        return None if self.case.code.forward is None else self._load(self.case.code.forward, "forward")

    def body(self) -> Callable[..., list[Any]]:
        """Return the forward alone, as a function of flat tensors."""
        return self._symmetrise_inputs(self._function())

    def settings(self) -> set[str]:
        """Return the names in `attrs` and `build` that all functions get.

        A gradient apart reads `attrs` from its op, and one in NumPy none. A reference gets what it takes.
        """
        code, reference = self.case.code, self.case.reference
        names = {*code.attrs, *(code.build or {})}
        if code.gradient is not None:
            names = set() if code.gradient.numpy else {*code.attrs}
        if reference is not None:
            names &= {*code_of_reference(self._load(reference.function, "reference"), self.case).attrs}
        return names

    def reference(self) -> Bound:
        """Bind the reference, which is differenced; a NumPy function is called through py_func.

        It gets the attrs that it takes, and the forward's `build` arguments if it takes those.
        """
        reference = self.case.reference
        function = self._load(reference.function if reference else None, "reference")
        case = replace(self.case, code=code_of_reference(function, self.case))
        if reference is not None and reference.implicit:
            make_distribution = partial(call_with, function, function, case)
            return Bound(self._symmetrise_inputs(_implicit_sample(self._function(), make_distribution)))
        binder = replace(self, case=case)
        call = binder._tensor_or_numpy_function(function, "reference")  # noqa: SLF001 (of the same class)
        return Bound(self._symmetrise_inputs(call))

    # How forward is called.

    def _symmetrise_inputs(self, call: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        """Give a function the symmetric (Hermitian) part of each input that the spec says is symmetric.

        It is then a function of the whole matrix, whichever triangle it reads: a change of one element moves
        it and its mirror image by half each. TensorFlow's own gradient of this takes the symmetric part.
        """
        are_symmetric = [tensor.symmetric for tensor in self.case.tensors]
        if not any(are_symmetric):
            return call

        def of_parts(*tensors: Any) -> list[Any]:
            return call(
                *[
                    (tensor + tf.linalg.adjoint(tensor)) / 2 if is_symmetric else tensor
                    for tensor, is_symmetric in zip(tensors, are_symmetric, strict=False)
                ]
            )

        return of_parts

    def _load(self, ref: FunctionRef | None, role: str) -> Callable[..., Any]:
        if ref is None:
            raise CaseFailedError("attribute", f"{role}: is missing.")
        # A module may make layers when it is imported. A seed costs a new kernel for each op and function.
        is_imported = ref.target.partition(":")[0] in sys.modules
        with contextlib.nullcontext() if is_imported else users_code.seed_globals(self.case.seed):
            target = users_code.load(ref.target, role)
        owner = "" if role == "gradient" else users_code.owner_of_method(ref.target, target)
        is_factory = role == "forward" or (role == "reference" and takes_build_alone(target, self.case.code))
        if owner and "self" not in {argument.name for argument in self.case.arguments}:
            made = self._build(owner, users_code.load(owner, role), role)
            target = getattr(made, ref.target.rpartition(".")[2])
        elif is_factory and (self.case.code.build is not None or users_code.makes_callables(target)):
            target = self._build(ref.target, target, role)
            if not callable(target):
                raise CaseFailedError(
                    role,
                    f"build: {ref.target}(**build) must return the function, layer or module to check, but "
                    f"returned a {type(target).__name__}.",
                )
        if role != "gradient":
            require_order(target, self.case, role)
        return target  # type: ignore[no-any-return]

    def _build(self, name: str, factory: Callable[..., Any], role: str) -> Any:
        """Return what a factory, or a method's class, makes from `build`; it is called once for each case."""
        if name in self.built:
            return self.built[name]
        with (
            frames.naming_errors(role, f"build: {name}(**build)", "build"),
            users_code.seed_globals(self.case.seed),
            hooks.behaviour().calling(),
        ):
            self.built[name] = factory(**dict(self.case.code.build or {}))
        return self.built[name]

    def _function(self) -> Callable[..., list[Any]]:
        """Return forward as a function of flat tensors: the user's, or the raw op."""
        ref = self.case.code.forward
        if ref is None:
            return lambda *tensors: create_raw_op(self.case, tensors)
        function = self._load(ref, "forward")
        return self._py_func(function) if ref.numpy else self._tensor_function(function, "forward")

    def _tensor_function(self, function: Callable[..., Any], role: str) -> Callable[..., list[Any]]:
        def call(*tensors: Any) -> list[Any]:
            result = call_with(invoke, function, self.case, tensors)
            return flat_outputs(self.case, result, role, self.names)

        def invoke(*arguments: Any, **keywords: Any) -> Any:
            with bind_settings(function, arguments, keywords):
                if tf.executing_eagerly():
                    with hooks.behaviour().calling():
                        return function(*arguments, **keywords)
                return private_graphs.call_with_autograph(function, arguments, keywords)

        return call

    def _tensor_or_numpy_function(self, function: Callable[..., Any], role: str) -> Callable[..., list[Any]]:
        """Call a function of tensors; one that can't take symbolic tensors is a NumPy function."""

        def call(*tensors: Any) -> list[Any]:
            try:
                return self._tensor_function(function, role)(*tensors)
            except NotImplementedError as error:
                if "numpy" not in frames.text_of(error).lower():
                    raise
                return self._py_func(function)(*tensors)

        return call

    def _py_func(self, function: Callable[..., Any]) -> Callable[..., list[Any]]:
        case = self.case
        if not case.outputs or any(output.dtype is None for output in case.outputs):
            raise CaseFailedError(
                "outputs", "a NumPy function needs 'outputs' as a mapping with each output's dtype."
            )
        declared = [tf.as_dtype(self.dtype_of(str(output.dtype))) for output in case.outputs]
        run_numpy = hooks.behaviour().wrap_numpy(function)

        def body(*arrays: np.ndarray[Any, Any]) -> Any:
            names = [f"forward writes to {tensor.name}" for tensor in case.tensors]
            run = partial(call_with, run_numpy, function, case)
            return flat_arrays(case, _call_with_copies(run, names, self.modified, arrays))

        def call(*tensors: Any) -> list[Any]:
            results = list(tf.compat.v1.py_func(body, list(tensors), declared, stateful=True))
            for index, result in enumerate(results):
                shape = case.outputs[index].shape if self.output_shapes is None else self.output_shapes[index]
                if shape is not None:
                    result.set_shape(self.shape_of(shape))
            return results

        return call

    # How the gradient is attached.

    def _load_gradient(self) -> Callable[..., list[Any]]:
        gradient = self.case.code.gradient
        names = [tensor.name for tensor in self.case.tensors]
        function = self._load(gradient, "gradient")
        if gradient is None or not gradient.numpy:
            return guard_gradient(function, names)
        # A call at the base point shows its dtypes and Nones, once the forward's shapes are known.
        function = hooks.behaviour().wrap_numpy(function)
        function = from_numpy(function, self.point, self.output_shapes or (), names, self.modified)
        return guard_gradient(function, names, "numpy_gradient")

    def _custom_gradient(
        self, body: Callable[..., list[Any]], gradient: Callable[..., list[Any]]
    ) -> Callable[..., list[Any]]:
        name, code = self.case.op, self.case.code

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def bound(*tensors: Any) -> Any:
            outputs = body(*tensors)
            view = OpView(
                type=code.op_type or name, name=name, inputs=tensors, outputs=outputs, attrs=code.attrs
            )
            return outputs, lambda *upstream: gradient(view, *upstream)

        def call(*tensors: Any) -> list[Any]:
            return as_list(bound(*tensors))

        return call

    def _defun(self, gradient: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        body = self._tensor_or_numpy_function(self._load(self.case.code.forward, "forward"), "forward")

        def call(*tensors: Any) -> list[Any]:
            result = private_graphs.call_defun(unique_name(self.case.op), body, gradient, tensors)
            outputs = as_list(result)
            declared = [output.shape for output in self.case.outputs]
            if len(declared) != len(outputs):  # structures among them, which have no shape
                declared = []
            shapes: Sequence[Shape | None] = self.output_shapes or declared
            for output, shape in zip(outputs, shapes, strict=False):
                if shape is not None:
                    output.set_shape(self.shape_of(shape))
            return outputs

        return call


def _implicit_sample(
    sampler: Callable[..., list[Any]], make_distribution: Callable[[Sequence[Any]], Any]
) -> Callable[..., list[Any]]:
    """Return a function of the parameters with a sampler's values and the derivative from its CDF.

    A sample z keeps its quantile as the parameters p move: F(z; p) doesn't change. So dz/dp = -(dF/dp) / f,
    where f is the density at z (implicit reparameterisation; Figurnov and others, 2018). This doesn't depend
    on how the sampler draws.

    The argument of a `stop_gradient` is held at the base point, as in every reference. One Newton step from
    the sample there is right to first order.
    """

    def call(*tensors: Any) -> list[Any]:
        samples = sampler(*tensors)
        if len(samples) != 1:
            raise CaseFailedError(
                "outputs",
                f"implicit: the forward must return one sample, but returned {len(samples)} outputs.",
            )
        distribution = make_distribution(tensors)
        missing = [name for name in ("cdf", "prob") if not callable(getattr(distribution, name, None))]
        if missing:
            raise CaseFailedError(
                "reference",
                f"implicit: the reference must make a distribution with cdf and prob, but made a "
                f"{type(distribution).__name__} without {' and '.join(missing)}.",
            )
        sample = tf.stop_gradient(samples[0])
        quantile = distribution.cdf(sample)
        return [
            sample - (quantile - tf.stop_gradient(quantile)) / tf.stop_gradient(distribution.prob(sample))
        ]

    return call


def _call_with_copies(
    call: Callable[..., Any], names: Sequence[str], modified: list[str], arrays: Sequence[Any]
) -> Any:
    """Call NumPy code with copies, and note which it writes to: arrays may be TensorFlow's own memory."""
    copies = [np.array(array) for array in arrays]
    result = call(copies)
    for name, array, copy in zip(names, arrays, copies, strict=True):
        if array.tobytes() != copy.tobytes() and name not in modified:
            modified.append(name)
    return result


# The user's gradient function.

PREFIX = "gradcheck_"  # of every name that we register; `list` hides these names
_NUMBERS = itertools.count(1)
Gradient = Any  # tf.Tensor, tf.IndexedSlices or None

# Called with an op, the index of an input, and what is wrong with the form of its gradient
NoteForm = Callable[[Any, int, str], None]
# Called where the other gradients are still to be judged
_note: contextvars.ContextVar[NoteForm | None] = contextvars.ContextVar("note", default=None)


def unique_name(stem: str) -> str:
    """Return a name that no earlier registration in this process has used."""
    safe = "".join(char if char.isalnum() else "_" for char in stem)
    return f"{PREFIX}{safe}_{next(_NUMBERS)}"


@contextlib.contextmanager
def note_form_faults(note: NoteForm) -> Iterator[None]:
    """Replace malformed gradients by zeros and note them, instead of raising an error."""
    token = _note.set(note)
    try:
        yield
    finally:
        _note.reset(token)


def _replace_malformed(gradients: list[Gradient], op: Any, names: Sequence[str]) -> list[Gradient]:
    """Return gradients of the right form; malformed ones are replaced by zeros where they are noted.

    Raises:
        GradientFormError: one is malformed, and malformed ones aren't noted.
    """
    well_formed = list(gradients)
    for input_index, name in enumerate(names):
        tensor = op.inputs[input_index]
        message = _fault(name, gradients[input_index], tensor)
        if message:
            _note_or_raise(op, input_index, message)
            well_formed[input_index] = tf.zeros_like(tensor)
    return well_formed


def _note_or_raise(op: Any, input_index: int, message: str) -> None:
    note = _note.get()
    if note is None:
        raise GradientFormError((input_index,), message)
    note(op, input_index, message)


def _require_count(what: str, noun: str, gradients: Sequence[Gradient], names: Sequence[str]) -> None:
    """Require one gradient for each input.

    Raises:
        CaseFailedError: there are more, or fewer.
    """
    if len(gradients) != len(names):
        raise CaseFailedError(
            "gradient_count",
            f"the {what} must return {count(len(names), noun)}, one (or None) for each of "
            f"{', '.join(names)}, but returned {len(gradients)}.",
        )


def guard_gradient(
    gradient: Callable[..., Any], names: Sequence[str], called: str = "gradient"
) -> Callable[..., list[Gradient]]:
    """Wrap a gradient `(op, *upstream)` so that its results are checked before TensorFlow sees them.

    Args:
        called: how the user's own function is called, for `frames.raised`.
    """

    def call(op: Any, *upstream: Any) -> list[Gradient]:
        with frames.naming_errors("gradient", "the gradient function", called):
            gradients = as_list(gradient(op, *upstream))
        _require_count("gradient function", "gradient", gradients, names)
        return _replace_malformed(gradients, op, names)

    return call


def _fault(name: str, value: Gradient, tensor: Any) -> str:
    """Say what is wrong with a gradient's form; empty if nothing is. CaseFailedError if it is no tensor."""
    if value is None:
        return ""
    if not isinstance(value, tf.Tensor | tf.IndexedSlices):
        actual = type(value).__module__ + "." + type(value).__qualname__
        raise CaseFailedError(
            "gradient",
            f"the gradient for {name} must be a tensor or None, but is a {actual.removeprefix('builtins.')}; "
            "return a tensor, such as tf.constant(...), or name a NumPy function as "
            "'gradient: {numpy: module:function}'.",
        )
    if not dtypes.is_differentiable(tensor.dtype):
        return ""
    if value.dtype != tensor.dtype:
        expected, actual = tensor.dtype.name, value.dtype.name
        return f"the gradient for {name} must be {expected}, as its input is, but is {actual}."
    if not isinstance(value, tf.Tensor) or value.shape.is_compatible_with(tensor.shape):
        return ""
    return f"the gradient for {name} {form_fault(tensor.shape, value.shape)}"


def form_fault(input_shape: Any, gradient_shape: Any) -> str:
    """Say that a gradient hasn't its input's shape, and whether a sum may be missing."""
    text = (
        f"must have shape {shape_text(input_shape)}, as its input has, but has {shape_text(gradient_shape)}."
    )
    try:  # whether the input may have been broadcast to the gradient's shape
        is_broadcast = tf.broadcast_static_shape(gradient_shape, input_shape) == gradient_shape
    except ValueError:
        is_broadcast = False
    return f"{text} Sum it over the axes that broadcasting added." if is_broadcast else text


def from_numpy(
    function: Callable[..., Any],
    point: Sequence[np.ndarray[Any, Any]],
    output_shapes: Sequence[tuple[int, ...]],
    names: Sequence[str],
    modified: list[str],
) -> Callable[..., list[Gradient]]:
    """Turn a NumPy gradient `(*upstream, *inputs) -> arrays` into a registered-gradient function.

    Which gradients are `None`, and their dtypes, must be known when the graph is built, so the
    function is called once at `point` with upstreams of ones.
    """

    def gradient(op: Any, *upstream: Any) -> list[Gradient]:
        inputs = [
            dtypes.narrow(value, tensor.dtype.base_dtype.name)
            for value, tensor in zip(point, op.inputs, strict=True)
        ]
        # An integer output has no upstream; the function still expects an array in its place.
        all_upstreams = [
            tf.zeros_like(output) if flow is None else flow
            for flow, output in zip(upstream, op.outputs, strict=True)
        ]
        ones = [
            np.ones(shape, tensor.dtype.as_numpy_dtype)
            for shape, tensor in zip(output_shapes, all_upstreams, strict=True)
        ]
        places = [f"gradient writes to {place}" for place in (*["its upstream"] * len(ones), *names)]
        call = partial(_call_with_copies, lambda copies: as_list(function(*copies)), places, modified)
        first_gradients = call([*ones, *inputs])
        _require_count("NumPy gradient", "array", first_gradients, names)
        indices = [input_index for input_index, value in enumerate(first_gradients) if value is not None]
        indices = _check_dtypes(first_gradients, indices, op, names)
        if not indices:  # a py_func without outputs is an operation and returns nothing
            return [None] * len(names)

        def body(*arrays: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
            values = call(arrays)
            return [np.asarray(values[input_index]) for input_index in indices]

        tensors = tf.compat.v1.py_func(
            body,
            [*all_upstreams, *op.inputs],
            [op.inputs[input_index].dtype for input_index in indices],
            stateful=True,
        )
        result: list[Gradient] = [None] * len(names)
        # In eager mode, a single result comes as an array, without a list around it.
        for input_index, tensor in zip(indices, as_list(tensors), strict=True):
            result[input_index] = tf.convert_to_tensor(tensor)
        return result

    return gradient


def _check_dtypes(gradients: list[Any], indices: list[int], op: Any, names: Sequence[str]) -> list[int]:
    """Return the indices of arrays that have their input's dtype: `py_func` would refuse others when run."""
    malformed = []
    for input_index in indices:
        expected, actual = op.inputs[input_index].dtype, np.asarray(gradients[input_index]).dtype
        if dtypes.is_differentiable(expected) and actual != expected.as_numpy_dtype:
            message = (
                f"the gradient for {names[input_index]} must be {expected.name}, as its input is, "
                f"but is {actual.name}; NumPy may have promoted it."
            )
            _note_or_raise(op, input_index, message)
            malformed.append(input_index)
    return [input_index for input_index in indices if input_index not in malformed]


@dataclass(frozen=True)
class OpView:
    """Stands in for `tf.Operation` under the binding `custom_gradient`.

    `inputs` and `outputs` are tensors, lists flattened, as TensorFlow's own ops hold them. `get_attr`
    reads the spec's `attrs`.
    """

    type: str
    name: str
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    attrs: Mapping[str, Any]

    def get_attr(self, name: str) -> Any:
        """Return the attribute of that name; ValueError if the spec gives none, as `tf.Operation` does."""
        if name not in self.attrs:
            attr_names = ", ".join(sorted(self.attrs)) or "none"
            raise ValueError(
                f"Operation {self.name!r} has no attr named {name!r}; the spec's attrs: {attr_names}."
            )
        return self.attrs[name]
