"""The one Protocol through which checks see an op, so that a NumPy fake can drive them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gradcheck_cli.numerics.moves import Moves

Array = npt.NDArray[np.generic]


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
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def is_complex(self) -> bool:
        """Whether an element has a real and an imaginary part."""
        return self.dtype.startswith("complex")


@dataclass(frozen=True)
class OpPlace:
    """An op, and where its gradient function is written.

    Attributes:
        name: the op's name, with its name scope.
        type: TensorFlow's op type.
        gradient: the gradient function's name; empty where the op has none.
        file: the file where it is defined; empty where that isn't known.
        line: its 1-based line; 0 where that isn't known.
        inside: for a loop, a branch or a call: (name, file, line) of the user's gradients in its body.
    """

    name: str
    type: str
    gradient: str = ""
    file: str = ""
    line: int = 0
    inside: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True)
class Site:
    """A place in a forward where some corruption would show at one point and not at another.

    Examples are a side of a branch that no point takes, and an axis of size one. A gradient that is wrong
    only there passes at any tolerance, and no corruption of the visible part reveals it.

    Attributes:
        corruption: its name, among `CORRUPTIONS`.
        place: the op, and the user's line that made it.
        pairs: (output, input) indices of the pairs whose path contains it.
        unseen: what the points lack for the corruption to show, in words; empty if they lack nothing.
    """

    corruption: str
    place: str
    pairs: frozenset[tuple[int, int]]
    unseen: tuple[str, ...]

    @property
    def message(self) -> str:
        """The place, and what the points lack there, in words."""
        return f"{self.place}: {'; '.join(self.unseen)}"


def unseen_sites(points: Iterable[Sequence[Site]]) -> list[Site]:
    """Return the sites of a forward at which no point shows the corruption.

    Args:
        points: the sites at each sample point, in the same order.
    """
    merged: list[Site] = []
    for sites in points:
        if not merged:
            merged = list(sites)
            continue
        if len(sites) != len(merged):  # another trace: each point has its own sites
            merged += sites
            continue
        merged = [
            replace(site, unseen=tuple(lack for lack in site.unseen if lack in other_site.unseen))
            for site, other_site in zip(merged, sites, strict=True)
        ]
    return [site for site in dict.fromkeys(merged) if site.unseen and site.pairs]


class Operation(Protocol):
    """An op at a base point: evaluates its forward in batches and multiplies by its analytic Jacobian.

    Values cross this border in wide NumPy dtypes (float64, complex128, int64, bool, object for strings)
    that hold the op's own dtype exactly: float16, bfloat16 and float32 widen without loss. Points that go
    in must be representable in the input's own dtype.
    """

    @property
    def inputs(self) -> Sequence[TensorInfo]:
        """Every input tensor, lists flattened, in positional order."""

    @property
    def outputs(self) -> Sequence[TensorInfo]:
        """Every output tensor, with its shape at the base point."""

    @property
    def point(self) -> Sequence[Array]:
        """The base point: one array per input."""

    @property
    def base_values(self) -> Sequence[Array]:
        """The outputs at the base point."""

    def rounded_sizes(self, input_index: int) -> Sequence[Array]:
        """Return the size that each output's rounding is relative to: a sum's terms may be far larger.

        Args:
            input_index: the only input that moves.
        """

    @property
    def values_beside_gradient(self) -> Sequence[Array]:
        """The outputs at the base point, from the graph that also computes the gradient."""

    @property
    def low_precision(self) -> Sequence[str]:
        """Dtypes below float64 between differentiable inputs and outputs; empty where all are float64."""

    def low_precision_between(self, output: int, input_index: int) -> Sequence[str]:
        """Return the dtypes below float64 between an input and an output; see `low_precision`."""

    @property
    def quantisers(self) -> Sequence[str]:
        """Types of ops between differentiable inputs and outputs that round to steps of some size."""

    @property
    def vjp_low_precision(self) -> Sequence[str]:
        """For an op's float64 form: dtypes below it in which its vjp still computes."""

    @property
    def not_float64(self) -> str:
        """Why it isn't judged in float64, in words; empty where it is."""

    @property
    def random_types(self) -> Sequence[str]:
        """Types of ops that draw random values at each evaluation; empty where the forward is a function."""

    @property
    def frozen(self) -> Mapping[str, int]:
        """How many ops are held at their base value while the inputs move, by type."""

    @property
    def held_places(self) -> Sequence[str]:
        """The place of each `stop_gradient` that is held."""

    @property
    def unreachable(self) -> Sequence[str]:
        """Names of ops with a `stop_gradient` inside that should be held, but can't be reached."""

    def stops_between(self, output: int, input_index: int) -> Mapping[str, str]:
        """Return the `stop_gradient`s that backpropagation meets between an input and an output.

        Returns:
            A key, which is the same at every point and in the vjp, and the place to show, `file:line`.
        """

    def sites(self, pairs: Sequence[tuple[int, int]]) -> Sequence[Site]:
        """Return where the gradients of some pairs could be wrong without an effect at the base point.

        Args:
            pairs: output and input indices.
        """

    def closed(self, output: int, input_index: int) -> Sequence[str]:
        """Return the closed ops between an input and an output: their `stop_gradient`s can't be held."""

    def holding(self, stops: Collection[str]) -> Operation:
        """Return the same op with exactly these `stop_gradient`s, given by key, held in differences."""

    @property
    def modified_inputs(self) -> Sequence[str]:
        """Names of inputs that a NumPy forward was seen to write to."""

    @property
    def gradient_variables(self) -> Sequence[str]:
        """Names of the variables for which a custom gradient of the forward returns gradients."""

    @property
    def missed_by_override(self) -> Sequence[str]:
        """Names of the ops that an override was meant for but didn't reach."""

    @property
    def dtype_faults(self) -> Mapping[int, str]:
        """What is wrong with the dtype of a gradient, by input index."""

    @property
    def own_draws(self) -> tuple[str, ...]:
        """Types of the gradient's ops that draw from a `tf.random.Generator`, which the forward's aren't."""

    def evaluate(self, batch: Mapping[int, Array | Moves]) -> list[Array]:
        """Evaluate the forward at several points.

        Args:
            batch: input index -> values of shape (B, *input.shape), or moves of its elements in C order;
                other inputs stay at the base point.

        Returns:
            One array per output, of shape (B, *output.shape).
        """

    def is_connected(self, output: int, input_index: int) -> bool:
        """Whether the gradient of this output with respect to this input is a tensor, not `None`."""

    def is_plain_chain(self, output: int, input_index: int) -> bool:
        """Whether the gradient is made by TensorFlow's own gradients alone, and of several ops."""

    def leads_to(self, output: int, input_index: int) -> bool:
        """Whether this input moves this output through floating tensors, as far as that is known."""

    def reaches(self, output: int, input_index: int) -> bool:
        """Whether anything leads from this input to this output; true where that isn't known."""

    def passes_numpy(self, output: int, input_index: int) -> bool:
        """Whether this input moves this output only through NumPy, which can't be differentiated."""

    def vjp(self, output: int, upstream: Array | Moves) -> list[Array | None]:
        """Pull upstreams of one output back to every input.

        Args:
            output: the output's index.
            upstream: shape (B, *output.shape), or moves of its elements in C order.

        Returns:
            Per input, shape (B, *input.shape), or `None` where there is no path.
        """

    def vjp_beside(
        self, output: int, upstream: Array, point: Mapping[int, Array]
    ) -> list[Array | None] | None:
        """Pull one upstream back to every input at another point, as `vjp` does at the base point.

        Args:
            output: the output's index.
            upstream: shape (1, *output.shape).
            point: input index -> (1, *input.shape); other inputs stay.

        Returns:
            As `vjp`; a single `None` where gradients are available only at the base point.
        """

    def jvp(self, input_index: int, tangents: Array) -> list[Array | None] | None:
        """Push tangents of one input forward, without custom gradients.

        Args:
            input_index: the input's index.
            tangents: shape (B, *input.shape).

        Returns:
            Per output, shape (B, *output.shape), or `None` where nothing moves; a single `None` where forward
            mode isn't independent of the gradient under test.
        """

    def exactly(self) -> Operation | None:
        """Return the same op at the point before it was rounded to the declared dtypes.

        It is `None` where the point wasn't rounded, or where the op is no float64 twin.
        """

    def rounded_otherwise(self, draw: int) -> Operation | None:
        """Return the same twin with each rounded number of its vjp moved by one rounding, up or down.

        These are constants and weights of a declared dtype below float64, and values of files. It is `None`
        where the op is no float64 twin.

        Args:
            draw: chooses the directions.
        """

    def on_one_piece(self) -> Operation | None:
        """Return the op for differencing, with each element held on its own side of each kink.

        This is the smooth function that equals the op around the base point, unless that point is on a kink.
        It has one more output, the last: how many elements are on another side than at the base point. It is
        `None` where there are no kinks, or none can be held.
        """

    def joint_vjp(self, upstreams: Mapping[int, Array]) -> list[Array | None]:
        """Pull upstreams of all differentiable outputs back at once.

        Args:
            upstreams: output index -> shape (B, *output.shape).

        Returns:
            Per input, shape (B, *input.shape), or `None` where there is no path from any output.
        """


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
