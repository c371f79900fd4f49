"""How checks see an op, so that a NumPy fake can drive them: six functions, facts, and other forms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gradcheck_cli.numerics.sampling import Moves

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
    """An op, and where its gradient function is written.

    Attributes:
        inside: for a loop, a branch or a call: (name, file, line) of the user's gradients in its body.
    """

    name: str  # the op's name, with its name scope
    type: str  # TensorFlow's op type
    gradient: str = ""  # the gradient function's name; empty where the op has none
    file: str = ""  # the file where it is defined; empty where that isn't known
    line: int = 0  # its 1-based line; 0 where that isn't known
    inside: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True)
class Site:
    """A place in a forward where some corruption would show at one point and not at another.

    Examples are a side of a branch that no point takes, and an axis of size one. A gradient that is wrong
    only there passes at any tolerance, and no corruption of the visible part reveals it.

    Attributes:
        unseen: what the points lack for the corruption to show, in words; empty if they lack nothing.
    """

    corruption: str  # its name, among `CORRUPTIONS`
    place: str  # the op, and the user's line that made it
    pairs: frozenset[tuple[int, int]]  # (output, input) indices of the pairs whose path contains it
    unseen: tuple[str, ...]

    @property
    def message(self) -> str:
        """The place, and what the points lack there, in words."""
        return f"{self.place}: {'; '.join(self.unseen)}"


@dataclass(frozen=True)
class OpFacts(ABC):
    """What is known of an op at its base point; a backend that knows more answers more.

    Values are wide NumPy arrays, as in `Operation`. Some facts take a call of the forward or a trace of the
    gradient, so they are computed when they are asked for.

    Attributes:
        is_connected: whether the gradient of an output with respect to an input is a tensor, not `None`.
        is_plain_chain: whether that gradient is made by TensorFlow's own gradients alone, and of several ops.
    """

    is_connected: Callable[[int, int], bool]
    is_plain_chain: Callable[[int, int], bool] = lambda *_: False

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
    def own_draws(self) -> Sequence[str]:
        """Types of the gradient's ops that draw from a `tf.random.Generator`, which the forward's aren't."""
        return ()

    @property
    def modified_inputs(self) -> Sequence[str]:
        """Names of inputs that a NumPy forward was seen to write to."""
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

    def sites(self, pairs: Sequence[tuple[int, int]]) -> Sequence[Site]:
        """Return where the gradients of some pairs could be wrong without an effect at the base point."""
        del pairs
        return ()


def _nothing(*_: object) -> None:
    """Return `None`: there is no such form, or no such result."""


@dataclass(frozen=True)
class OpForms:
    """The same op in other forms, each `None` where there is none.

    Attributes:
        holding: with exactly these `stop_gradient`s, given by key, held in differences; `None` where the op
            itself does so.
        at_unrounded_point: a float64 twin at the point before it was rounded to the declared dtypes.
        rounded_otherwise: a twin with each rounded number moved by one rounding, up or down, as a draw
            chooses: constants and weights of a declared dtype below float64, and values of files.
        on_one_piece: the op for differencing, with each element held on its own side of each kink. It is the
            smooth function that equals the op around the base point, unless that point is on a kink. It has
            one more output, the last: how many elements are on another side than at the base point.
    """

    holding: Callable[[frozenset[str]], Operation | None] = _nothing
    at_unrounded_point: Callable[[], Operation | None] = _nothing
    rounded_otherwise: Callable[[int], Operation | None] = _nothing
    on_one_piece: Callable[[], Operation | None] = _nothing


@dataclass(frozen=True, kw_only=True)
class Operation:
    """An op at a base point, as six functions, with the facts about it and its other forms.

    Values cross this border in wide NumPy dtypes (float64, complex128, int64, bool, object for strings)
    that hold the op's own dtype exactly: float16, bfloat16 and float32 widen without loss. Points that go
    in must be representable in the input's own dtype. An op that differs in a few of these from another is
    made of it by `dataclasses.replace`.

    Attributes:
        evaluate: evaluates the forward at several points. It takes input index -> values of shape
            (B, *input.shape), or moves of its elements in C order; other inputs stay at the base point. It
            returns one array per output, of shape (B, *output.shape).
        vjp: pulls upstreams of one output back to every input. It takes the output and upstreams of shape
            (B, *output.shape), or moves of their elements in C order. It returns, per input, shape
            (B, *input.shape), or `None` where there is no path.
        joint_vjp: the same for upstreams of all differentiable outputs at once, by output index.
        vjp_beside: pulls B upstreams of an output back at another point, given as (B, *input.shape) by input
            index, B times the same. It returns `None` where gradients are available only at the base point.
        jvp: pushes tangents of one input, (B, *input.shape), forward without custom gradients. It returns per
            output (B, *output.shape), or `None` where nothing moves; a single `None` where forward mode isn't
            independent of the gradient under test.
        rounded_sizes: the size that each output's rounding is relative to if one input moves: a sum's terms
            may be far larger than the sum.
    """

    facts: OpFacts
    forms: OpForms = OpForms()
    evaluate: Callable[[Mapping[int, Stack]], list[Array]]
    vjp: Callable[[int, Stack], Gradients]
    joint_vjp: Callable[[Mapping[int, Array]], Gradients]
    vjp_beside: Callable[[int, Array, Mapping[int, Array]], Gradients | None] = _nothing
    jvp: Callable[[int, Array], Gradients | None] = _nothing
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


class GradientFormError(Exception):
    """A gradient of wrong shape or dtype, found before it could be evaluated: a finding, not a failure.

    Args:
        inputs: indices of the inputs whose gradient is wrong; empty where that isn't known.
        message: what was expected and what was found.
        place: the op that the gradient belongs to, and where it is written; `None` where that isn't known.
    """

    def __init__(self, inputs: tuple[int, ...], message: str, place: OpPlace | None = None) -> None:
        """Keep the parts; the exception's text is the message."""
        self.inputs = inputs
        self.message = message
        self.place = place
        super().__init__(message)
