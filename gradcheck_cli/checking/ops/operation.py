"""How checks see an op, so that a NumPy fake can drive them: six functions, facts, and other forms.

Its tensors are packed into real vectors (`pack`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics.sampling import Moves
from gradcheck_cli.spec.case import Case

Array = npt.NDArray[np.generic]
Stack = Array | Moves
Gradients = list[Array | None]


@dataclass(frozen=True)
class TensorInfo:
    """Name, dtype (TensorFlow's name for it) and shape of an input or output at the base point.

    If the op is a vjp that is itself differentiated, `of` names the forward's output that this tensor is a
    gradient of or an upstream for.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_differentiable: bool = True
    of: str = ""

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def is_complex(self) -> bool:
        """Whether an element has a real and an imaginary part."""
        return self.dtype.startswith("complex")


@dataclass(frozen=True)
class OpPlace:
    """An op, and where its gradient function is written."""

    name: str  # the op's name, with its name scope
    type: str  # TensorFlow's op type
    gradient: str = ""  # the gradient function's name; empty where the op has none
    file: str = ""  # the file where it is defined; empty where that isn't known
    line: int = 0  # its 1-based line; 0 where that isn't known
    # for a loop, a branch or a call: (name, file, line) of the user's gradients in its body
    inside: tuple[tuple[str, str, int], ...] = ()
    draws: str = ""  # the random op in the forward of a custom gradient, if there is one


@dataclass(frozen=True)
class OpOnPath:
    """An op on the way from an output to inputs."""

    place: OpPlace  # the op's name, type and place
    obstacle: str = ""  # why it can't be differenced by itself; empty where it can
    fault: str = ""  # what is wrong with its gradient's shape or dtype; empty where nothing is


@dataclass(frozen=True)
class OpPass:
    """One op of a backward pass and its values, in wide dtypes; `None` where there is no gradient."""

    place: OpPlace
    # (output index, what flowed in) of each output that the pass came through
    upstreams: tuple[tuple[int, Array | None], ...]
    # (input index, what came out) of each input that leads to an input of the case
    gradients: tuple[tuple[int, Array | None], ...]


@dataclass(frozen=True)
class OpFacts(ABC):
    """What is known of an op at its base point; a backend that knows more answers more.

    Values are wide NumPy arrays, as in `Operation`. Some facts take a call of the forward or a trace of the
    gradient, so they are computed when they are asked for.
    """

    # whether the gradient of an output with respect to an input is a tensor, not `None`
    is_connected: Callable[[int, int], bool]
    # how many gradients made it, of any output; 0 where not all of its own are the library's
    library_gradients: Callable[[int, int], int] = lambda *_: 0

    # Its tensors.

    @property
    @abstractmethod
    def inputs(self) -> Sequence[TensorInfo]:
        """Every input tensor, lists flattened, in positional order."""

    @property
    @abstractmethod
    def outputs(self) -> Sequence[TensorInfo]:
        """Every output tensor, with its shape at the base point."""

    @property
    @abstractmethod
    def point(self) -> Sequence[Array]:
        """The base point: one array per input."""

    @property
    @abstractmethod
    def base_values(self) -> Sequence[Array]:
        """The outputs at the base point."""

    @property
    def values_beside_gradient(self) -> Sequence[Array]:
        """The outputs at the base point, from the graph that also computes the gradient."""
        return self.base_values

    # Its precision.

    @property
    def low_precision(self) -> Sequence[str]:
        """Dtypes below float64 between differentiable inputs and outputs; empty where all are float64."""
        return ()

    def low_precision_between(self, output: int, input_index: int) -> Sequence[str]:
        """Return the dtypes below float64 between an input and an output."""
        del output, input_index  # those of the whole op
        return self.low_precision

    @property
    def vjp_low_precision(self) -> Sequence[str]:
        """For an op's float64 form: dtypes below it in which its vjp still computes."""
        return ()

    @property
    def not_float64(self) -> str:
        """Why it isn't judged in float64, in words; empty where it is."""
        return ""

    @property
    def quantisers(self) -> Sequence[str]:
        """Types of ops between differentiable inputs and outputs that round to steps of some size."""
        return ()

    # What leads from an input to an output.

    def leads_to(self, output: int, input_index: int) -> bool:
        """Whether this input moves this output through floating tensors, as far as that is known."""
        del output, input_index
        return False

    def reaches(self, output: int, input_index: int) -> bool:
        """Whether anything leads from this input to this output; true where that isn't known."""
        del output, input_index
        return True

    def passes_numpy(self, output: int, input_index: int) -> bool:
        """Whether this input moves this output only through NumPy, which can't be differentiated."""
        del output, input_index
        return False

    # What is held while the inputs move.

    @property
    def frozen(self) -> Mapping[str, int]:
        """How many ops are held at their base value while the inputs move, by type."""
        return {}

    @property
    def held_places(self) -> Sequence[str]:
        """The place of each `stop_gradient` that is held."""
        return ()

    @property
    def unreachable(self) -> Sequence[str]:
        """Names of ops with a `stop_gradient` inside that should be held, but can't be reached."""
        return ()

    @property
    def passed_over(self) -> Sequence[str]:
        """Places of `stop_gradient`s that should be held, but that backpropagation never meets."""
        return ()

    def stops_between(self, output: int, input_index: int) -> Mapping[str, str]:
        """Return the `stop_gradient`s that backpropagation meets between an input and an output.

        Returns:
            A key, which is the same at every point and in the vjp, and the place to show, `file:line`.
        """
        del output, input_index
        return {}

    def closed(self, output: int, input_index: int) -> Sequence[str]:
        """Return the closed ops between an input and an output: their `stop_gradient`s can't be held."""
        del output, input_index
        return ()

    # What else the checks report.

    @property
    def random_types(self) -> Sequence[str]:
        """Types of ops that draw random values at each evaluation; empty where the forward is a function."""
        return ()

    @property
    def draws_anew(self) -> bool:
        """Whether the graph of the gradient draws what the forward hasn't drawn."""
        return False

    @property
    def own_draws(self) -> Sequence[str]:
        """Types of the gradient's ops that draw from a `tf.random.Generator`, which the forward's aren't."""
        return ()

    @property
    def modified_inputs(self) -> Sequence[str]:
        """Which NumPy code was seen to write to which of its arrays."""
        return ()

    @property
    def refusal(self) -> str:
        """What the forward raised at the first point that it refused, in words; empty where it never did."""
        return ""

    @property
    def gradient_variables(self) -> Sequence[str]:
        """Names of the variables for which a custom gradient of the forward returns gradients."""
        return ()

    @property
    def missed_by_override(self) -> Sequence[str]:
        """Names of the ops that an override was meant for but didn't reach."""
        return ()

    @property
    def dtype_faults(self) -> Mapping[int, str]:
        """What is wrong with the dtype of a gradient, by input index."""
        return {}


def _nothing(*_: object) -> None:
    """Return `None`: there is no such form, or no such result."""


@dataclass(frozen=True)
class OpForms:
    """The same op in other forms, each `None` where there is none."""

    # with exactly these `stop_gradient`s, given by key, held in differences; `None` where the op itself does
    # so
    holding: Callable[[frozenset[str]], Operation | None] = _nothing
    # a float64 twin at the point before it was rounded to the declared dtypes
    at_unrounded_point: Callable[[], Operation | None] = _nothing
    # the op in float64, with each inexact result in its gradient moved by one rounding, up or down, as a draw
    # chooses, and constants, the forward's as well, by one of their declared dtype; draw 0 moves nothing
    rounded_otherwise: Callable[[int], Operation | None] = _nothing
    # the line, `file:line`, at which most of such rounding arises; empty where there is none. It takes a
    # function that measures how far an element moves in such forms, which it gets by draw.
    place_of_rounding: Callable[[Callable[[Callable[[int], Operation | None]], float]], str] = lambda _: ""
    # the op for differencing, with each element held on its own side of each kink. It is the smooth function
    # that equals the op around the base point, unless that point is on a kink. It has one more output, the
    # last: how many elements are on another side than at the base point.
    on_one_piece: Callable[[], Operation | None] = _nothing
    # with loops that go round so many times as often, where values stop them: a solver's, at a tolerance
    running_on: Callable[[int], Operation | None] = _nothing
    # with a vjp that pulls back to these inputs alone, by index, which may cost much less
    pulling_to: Callable[[Collection[int]], Operation | None] = _nothing


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An op at a base point, as five functions, with the facts about it and its other forms.

    Values cross this border in wide NumPy dtypes (float64, complex128, int64, bool, object for strings)
    that hold the op's own dtype exactly: float16, bfloat16 and float32 widen without loss. Points that go
    in must be representable in the input's own dtype. An op that differs in a few of these from another is
    made of it by `dataclasses.replace`.
    """

    facts: OpFacts
    forms: OpForms = OpForms()
    # evaluates the forward at several points. It takes input index -> values of shape (B, *input.shape), or
    # moves of its elements in C order; other inputs stay at the base point. It returns one array per output,
    # of shape (B, *output.shape).
    evaluate: Callable[[Mapping[int, Stack]], list[Array]]
    # pulls upstreams of one output back to every input. It takes the output and upstreams of shape
    # (B, *output.shape), or moves of their elements in C order. It returns, per input, shape
    # (B, *input.shape), or `None` where there is no path.
    vjp: Callable[[int, Stack], Gradients]
    # the same for upstreams of all differentiable outputs at once, by output index
    joint_vjp: Callable[[Mapping[int, Array]], Gradients]
    # pulls B upstreams of an output back at another point, given as (B, *input.shape) by input index, B times
    # the same. It returns `None` where gradients are available only at the base point.
    vjp_beside: Callable[[int, Array, Mapping[int, Array]], Gradients | None] = _nothing
    # the size that each output's rounding is relative to if one input moves: a sum's terms may be far larger
    # than the sum
    rounded_sizes: Callable[[int], Sequence[Array]]

    @property
    def inputs(self) -> Sequence[TensorInfo]:
        """Every input tensor; see `OpFacts`."""
        return self.facts.inputs

    @property
    def outputs(self) -> Sequence[TensorInfo]:
        """Every output tensor; see `OpFacts`."""
        return self.facts.outputs

    @property
    def point(self) -> Sequence[Array]:
        """The base point; see `OpFacts`."""
        return self.facts.point

    @property
    def base_values(self) -> Sequence[Array]:
        """The outputs at the base point; see `OpFacts`."""
        return self.facts.base_values

    @property
    def is_finite(self) -> bool:
        """Whether every number of its floating outputs at the base point is finite."""
        outputs = zip(self.outputs, self.base_values, strict=True)
        return all(np.isfinite(value).all() for info, value in outputs if info.is_differentiable)


class GradientFormError(Exception):
    """A gradient of wrong shape or dtype, found before it could be evaluated: a finding, not a failure.

    Args:
        inputs: indices of the inputs whose gradient is wrong; empty where that isn't known.
        message: what was expected and what was found.
    """

    def __init__(self, inputs: tuple[int, ...], message: str) -> None:
        """Keep the parts; the exception's text is the message."""
        self.inputs = inputs
        self.message = message
        super().__init__(message)


# How tensors are packed.

# Complex tensors are packed as real vectors: real parts first, then imaginary parts; real tensors stay as
# they are. With TensorFlow's convention, the gradient of a real loss L being dL/dRe + i dL/dIm, a vjp is
# right if Re<vjp(u), v> = Re<u, J v> for every upstream u and real tangent v. On packed vectors that is
# pack(vjp(u)) = R' pack(u), with R the Jacobian of the packed function.

Float = npt.NDArray[np.float64]


def packed_size(info: TensorInfo) -> int:
    """Return the number of real components."""
    return info.size * (2 if info.is_complex else 1)


def pack(values: Array, info: TensorInfo) -> Float:
    """Turn (B, *shape) into (B, packed_size).

    Raises:
        CaseFailedError: of kind "outputs": the values aren't of the tensor's shape.
    """
    array = np.asarray(values)
    if array.size != len(array) * info.size:
        raise CaseFailedError(
            "outputs",
            f"{info.name} has the shape {list(info.shape)} at the first evaluation, and "
            f"{list(array.shape[1:])} at others. Leave it out of what forward returns.",
        )
    flat = array.reshape(len(array), info.size)
    if info.is_complex:
        flat = np.concatenate([flat.real, flat.imag], axis=1)
    return flat.astype(np.float64, copy=False)


def unpack(vectors: Float, info: TensorInfo) -> Array:
    """Turn (B, packed_size) into (B, *shape)."""
    if info.is_complex:
        whole = np.empty((len(vectors), info.size), np.complex128)
        whole.real, whole.imag = vectors[:, : info.size], vectors[:, info.size :]
        return whole.reshape(len(vectors), *info.shape)
    return vectors.reshape(len(vectors), *info.shape)


def packed_magnitude(values: Array, info: TensorInfo) -> Float:
    """Return the magnitude of the element behind each packed position, (packed_size,), for tolerances.

    Both parts of a complex number get its modulus: either is rounded relative to the whole, so an imaginary
    part of zero is only as accurate as the real part.
    """
    magnitude = np.abs(np.asarray(values).reshape(info.size)).astype(np.float64)
    return np.concatenate([magnitude, magnitude]) if info.is_complex else magnitude


def index_of(position: int, info: TensorInfo) -> tuple[int, ...]:
    """Return the tensor's own index of a packed position.

    At a sample point at which the tensor has another shape, it is the position.
    """
    if position >= packed_size(info):
        return (position,)
    return tuple(int(index) for index in np.unravel_index(position % info.size, info.shape))


def part_of(position: int, info: TensorInfo) -> str:
    """Return which part of a complex element a packed position holds: "", "re" or "im"."""
    if not info.is_complex:
        return ""
    return "im" if position >= info.size else "re"


def name_element(position: int, info: TensorInfo) -> str:
    """Name a packed position: `y[0,2]`, `im z[1]`."""
    index = ",".join(map(str, index_of(position, info)))
    return f"{part_of(position, info)} {info.name}{f'[{index}]' if index else ''}".strip()


# How ops are opened.


@dataclass(frozen=True, kw_only=True)
class OpenedOperation(Operation):
    """An op that an opener opened."""

    opening: Opening  # the form of the case that this op is


Op = TypeVar("Op", bound=OpenedOperation)


class Opener(Protocol[Op]):
    """Opens a case as ops. What is traced for one sample point serves every point."""

    @property
    def case(self) -> Case:
        """The case, with what only opening shows: its variables are among the arguments."""

    def open(self, opening: Opening) -> Op:
        """Open a form of the case in the dtypes that the spec names; `in_float64` opens it in wide ones.

        Raises:
            CaseFailedError: it can't be opened.
        """

    def at(self, sample: int) -> AbstractContextManager[None]:
        """Give the weights their values at a sample point while a block runs; ops are run at them.

        Each moves in the first way in which the forward can be evaluated, or else stays.
        """

    @property
    def still_weights(self) -> Sequence[str]:
        """Names of the weights that stay, since the forward can't be evaluated with them moved."""

    def in_float64(self, op: Op) -> Op | None:
        """Open an opened op in float64; `None` where that isn't needed, or isn't the same function."""

    def retrace(self, op: Op) -> Op:
        """Trace an opened op's gradient again, for the same point."""

    def vjp(self, op: Op) -> Opener[Op]:
        """Return an opener of an opened op's vjp as an op of its own, to be differentiated again."""

    def written_ops(self, op: Op, output: int, input_index: int) -> Sequence[Operation] | None:
        """Return the ops of a pair's path whose gradients the user wrote, each by itself, at its own point.

        Returns:
            `None` where they aren't known.
        """

    def gradients_seen(self, op: Op) -> Mapping[str, int]:
        """Return how often each registered gradient function was called when an opened op's vjp was built.

        Raises:
            CaseFailedError: one that the spec covers wasn't called.
        """

    def unrun_gradients(self, op: Op) -> Sequence[str]:
        """Say which custom gradients the forward called and no backward pass of an op ran, and why."""


Dtype = Literal["declared", "float64"]


@dataclass(frozen=True)
class Opening:
    """One form of a case."""

    sample: int = 0  # index of the sample point
    of: Literal["forward", "reference"] = "forward"  # the case's forward, or the spec's reference function
    # the dtypes that the spec names; or float64, with complex128 for complex tensors
    dtype: Dtype = "declared"
    reversed: bool = False  # give custom gradients their variables in reverse order
    vectorised: bool = False  # pull each upstream back among others, by `tf.vectorized_map`

    @property
    def is_reference(self) -> bool:
        """Whether this is the spec's reference function."""
        return self.of == "reference"


@dataclass(frozen=True)
class Operations:
    """The ops at one sample point."""

    declared: Operation  # the op in the dtypes that the spec names
    formula: Operation  # the same op in float64, or `declared` where there is none
    differenced: Operation  # the op that is differenced: `formula`, or the spec's reference
    budget: Budget = field(default_factory=Budget)  # limits what judging element by element may spend
    # the inputs that are known to be on a kink of some element; probing adds to them
    on_kinks: set[int] = field(default_factory=set)
    # what was measured of the formula's rounding: of several inputs, the same is asked
    rounding: dict[object, Mapping[int, Float]] = field(default_factory=dict)

    @staticmethod
    def of_one(op: Operation) -> Operations:
        """Return one op in every form, without a budget."""
        return Operations(op, op, op)

    @cached_property
    def piece(self) -> Operation:
        """The differenced op with its kinks held where they are; the op itself where none can be held."""
        return self.differenced.forms.on_one_piece() or self.differenced

    def in_form(self, make: Callable[[OpForms], Operation | None]) -> Operations | None:
        """Return the ops in another form; `None` if the formula has none. A reference without it stays."""
        formula = make(self.formula.forms)
        if formula is None:
            return None
        is_reference = self.differenced is not self.formula
        differenced = make(self.differenced.forms) or self.differenced if is_reference else formula
        return Operations(self.declared, formula, differenced, budget=self.budget)

    def pulling_to(self, inputs: Collection[int]) -> Operations:
        """Return the same ops with vjps that pull back to these inputs alone, where there are such forms."""
        declared, formula = (op.forms.pulling_to(inputs) or op for op in (self.declared, self.formula))
        return replace(self, declared=declared, formula=formula if self.has_reference_precision else declared)

    @property
    def has_reference_precision(self) -> bool:
        """Whether the formula is judged in float64 although the declared dtype is another."""
        return self.formula is not self.declared


def open_operations(case: Case, opener: Opener[Op], sample: int, op: Op) -> Operations:
    """Open the forms of an op that are used at a sample point.

    Args:
        case: says whether there is a reference, and which method is used.
        sample: index of the sample point.
        op: the declared op at that point.

    Raises:
        CaseFailedError: the reference can't be evaluated, or doesn't have the forward's outputs.
    """
    formula = opener.in_float64(op) or op
    if case.reference is None:
        return Operations(op, formula, formula)
    try:
        surrogate = opener.open(Opening(sample, of="reference"))
        surrogate = opener.in_float64(surrogate) or surrogate
        shapes = _shapes(surrogate)
    except CaseFailedError as error:
        if error.kind != "forward":
            raise
        message = error.message.replace("the forward raised", "the reference raised", 1)
        raise CaseFailedError("reference", message, error.traceback) from error
    if shapes != _shapes(op):
        raise CaseFailedError(
            "outputs",
            f"the reference's outputs must have the forward's shapes {_shapes(op)}, but have {shapes}.",
        )
    if _names(surrogate) != _names(op):
        # If outputs were matched by position alone, one's loss could be compared with the other's accuracy.
        raise CaseFailedError(
            "outputs",
            f"the reference must return what the forward does, {', '.join(_names(op))}, but returns "
            f"{', '.join(_names(surrogate))}: return the same structure, or name the outputs in the spec.",
        )
    return Operations(op, formula, surrogate)


def _names(op: Operation) -> list[str]:
    return [output.name for output in op.outputs]


def _shapes(op: Operation) -> list[list[int]]:
    return [list(output.shape) for output in op.outputs]
