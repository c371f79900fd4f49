"""A concrete case: one op with its inputs, dtypes and expectations, after every merge; plain frozen data.

This module doesn't know YAML, pydantic or TensorFlow: the backend and the checks read these values. Mappings
are plain dicts that nobody changes: a case is sent to worker processes, and a mapping proxy can't be pickled
(nor, up to Python 3.11, be the default of a dataclass field).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gradcheck_cli.spec.words import SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True)
class FunctionRef:
    """A function named in a spec: `module:attribute`; `numpy` marks one that takes and returns arrays."""

    target: str
    numpy: bool = False


@dataclass(frozen=True)
class Source:
    """Where an input's values come from: a generator's name and its arguments.

    `kind` is one of `words.SOURCES`. The arguments of "places" hold the dense `shape`; those of "variable",
    which the backend adds, the array `value`.
    """

    kind: str = "default"
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class InputSpec:
    """One tensor that goes into the op.

    `domain` holds the bounds that no perturbation leaves, or `None`. `scale` is the typical magnitude, for
    the step. With `differentiate: false` the tensor isn't differentiated. If the op is a vjp and this is an
    upstream, `upstream_of` names the forward's output.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    source: Source = field(default_factory=Source)
    differentiate: bool = True
    domain: tuple[float | None, float | None] = (None, None)
    scale: float | None = None
    away_from: tuple[float, ...] = ()
    min_gap: float | None = None
    symmetric: bool = False  # a matrix that stays symmetric (Hermitian) when it moves
    upstream_of: str = ""

    @property
    def is_variable(self) -> bool:
        """Whether this is a variable that the forward uses, not an argument of it."""
        return self.source.kind == "variable"

    @property
    def is_differentiable(self) -> bool:
        """Whether gradients with respect to this tensor exist: a float or complex dtype, not switched off."""
        return self.differentiate and self.dtype.startswith(("float", "bfloat", "complex"))


@dataclass(frozen=True)
class Form:
    """How an argument is built from tensors: one node of its structure, which the backend builds.

    Attributes:
        kind: "tensor"; "list", "tuple", "dict" or "object", of `parts`; "sparse" (of the tensors indices,
            values, dense_shape) or "ragged" (of flat values and then row splits, the outermost first).
        parts: what a structure holds, in order.
        keys: the names of the parts of a dict or an object.
        target: the class of an object, as `module:Class`.
        shape: the dense shape of a sparse tensor.
        splits: how many ragged dimensions a ragged tensor has.
    """

    kind: str = "tensor"
    parts: tuple[Form, ...] = ()
    keys: tuple[str, ...] = ()
    target: str = ""
    shape: tuple[int, ...] = ()
    splits: int = 0

    @property
    def targets(self) -> tuple[str, ...]:
        """Every class named in it."""
        inner = tuple(target for part in self.parts for target in part.targets)
        return (self.target, *inner) if self.target else inner


TENSOR = Form()


@dataclass(frozen=True)
class Argument:
    """One argument of forward: a tensor, or a structure of tensors, each named by its path in it.

    `tensors` holds them flat, in the order of `form`: `values[0]`, `params.w`, `x.indices`.
    """

    name: str
    tensors: tuple[InputSpec, ...]
    form: Form = TENSOR


@dataclass(frozen=True)
class OutputSpec:
    """What a spec says about one output: its name, and its dtype and shape if they are given.

    If the op is a vjp and this is one of the gradients, `gradient_of` names the forward's output.
    """

    name: str
    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None
    gradient_of: str = ""


# The index of the additional sample point whose values are those of the first one, each moved a little.
MOVED = -1


@dataclass(frozen=True)
class PairRule:
    """What a spec expects of the pairs whose label matches `glob` (`*` and `?`; brackets are literal).

    `kind` is the kind of a mismatch, if it is given: value, none, nonfinite, form or raises.
    """

    glob: str
    expect: str = "pass"  # pass, mismatch, disconnected, zero, skip; "": as the case says
    atol: float | None = None
    rtol: float | None = None
    reason: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Tolerance:
    """Absolute and relative tolerance as written in a spec; `None` leaves the scaled default."""

    atol: float | None = None
    rtol: float | None = None


@dataclass(frozen=True)
class Power:
    """What random probes must be able to see.

    Attributes:
        size: relative error in one element.
        miss: the probability with which it may be missed.
    """

    size: float = 0.01
    miss: float = 0.1

    def __str__(self) -> str:
        """Return the form in which the command line takes it."""
        return f"{self.size:g}:{self.miss:g}"


@dataclass(frozen=True)
class Given:
    """How a function that was given in Python is called; a spec has none of this.

    Attributes:
        pack: takes the flat tensors, and returns the positional and the keyword arguments.
        variables: the only trainable variables that are inputs; `None`: as `Case.variables` says.
    """

    pack: Callable[[Sequence[object]], tuple[list[object], dict[str, object]]]
    variables: tuple[object, ...] | None = None


@dataclass(frozen=True)
class Case:
    """One op at one set of inputs and dtypes; one group of rows in the report.

    Attributes:
        op: the spec's name of the op.
        name: the case's name; "default" for the spec's own inputs.
        path: the spec's file, as the user named it.
        folder: the spec's folder, absolute; it is importable, and `file:` paths are relative to it.
        line: 1-based line of the document (or of the entry in `ops:`).
        forward: the function under test; `None` where `op_type` alone names a raw op.
        binding: autodiff, custom_gradient, override, py_func or defun (already resolved from defaults).
        build: keyword arguments that make `forward` a factory; `None` if it isn't one.
        dtype: what the report shows as the case's dtype.
        outputs: named outputs; empty where the spec names none.
        implicit: whether `reference` makes the distribution of the sample that the forward draws.
        expect: the expectation for each pair that no rule of `pairs` covers; `expect_kind` is the kind of the
            mismatch, if it is given.
        checks_off: names of the structural checks that the spec turns off.
        nondeterminism: how far a repeated gradient may differ from the first, absolute.
        unreached: sides of branches that the inputs can't take: globs, each with the reason.
        modes: the modes that the case is checked in, in order; `spec.modes` makes a case of each.
        mode: the mode of this case: graph, dynamic, eager or xla.
        variables: whether each trainable variable that the forward uses is an input of its own; `None` for
            those of a Keras layer or model, and those that a custom gradient has gradients for. The variables
            aren't known when the spec is read: the backend adds them to the arguments.
        second_order: whether the vjp is checked as a function of its own, of the inputs and of the upstream.
        device: where it runs, such as "GPU:0"; `None` leaves it to TensorFlow.
        freeze: whether a `stop_gradient` on backpropagation's path is held while inputs move; `None`: the
            spec doesn't say.
        timeout: the time limit in seconds; `None` leaves it to the command line.
        method: how a pair is judged: element by element, by random probes, or depending on its size.
        power: what probes must be able to see.
        budget: seconds that `auto` may take to judge the case, beyond the necessary minimum.
        full_only: whether probes are refused, so that pairs that are too large otherwise are inconclusive.
        variant: the entry of `dtypes` that made this case, or `None`.
        corruptions: ways in which its gradients are corrupted, to test whether that is found; empty for a
            normal check.
        covers: op types whose registered gradient functions its backward pass calls, by the spec.
        tensorflow: the TensorFlow versions that it is for; empty for any.
        needs: modules that must be installed for it.
        is_alone: whether no case of the op has elements to differentiate by; if this one has none either,
            nothing about the op is checked.
        remembered: whether a report or a baseline will record its pairs, which then need fingerprints.
        search: seconds for which to search for a point at which the gradient is wrong.
        given: how the forward is called, where a function was given in Python.
        drawn: which pairs get a picture: "doubtful" for all that aren't a plain pass, or a label.
    """

    op: str
    name: str
    path: str
    folder: str
    line: int
    forward: FunctionRef | None
    op_type: str | None
    binding: str
    gradient: FunctionRef | None
    arguments: tuple[Argument, ...]
    dtype: str
    attrs: Mapping[str, object] = field(default_factory=dict)
    build: Mapping[str, object] | None = None
    outputs: tuple[OutputSpec, ...] = ()
    reference: FunctionRef | None = None
    reference_forward: bool = False
    implicit: bool = False
    expect: str = "pass"  # pass, mismatch
    expect_kind: str = ""  # of the mismatch
    reason: str = ""
    pairs: tuple[PairRule, ...] = ()
    tolerance: Tolerance = Tolerance()
    samples: int = 2
    seed: int = 0
    timeout: float | None = None
    tags: tuple[str, ...] = ()
    method: str = "auto"
    power: Power = Power()
    budget: float = 10.0
    full_only: bool = False
    checks_off: frozenset[str] = frozenset()
    nondeterminism: float = 0.0
    unreached: tuple[tuple[str, str], ...] = ()
    freeze: bool | None = None
    modes: tuple[str, ...] = ("graph",)
    mode: str = "graph"
    device: str | None = None
    variables: bool | None = None
    second_order: bool = False
    description: str = ""
    variant: str | None = None
    corruptions: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    tensorflow: str = ""
    needs: tuple[str, ...] = ()
    is_alone: bool = True
    remembered: bool = True
    drawn: str = ""
    search: float = 0.0
    given: Given | None = None

    @property
    def tensors(self) -> tuple[InputSpec, ...]:
        """All input tensors in positional order, lists flattened."""
        return tuple(tensor for argument in self.arguments for tensor in argument.tensors)

    @property
    def has_elements(self) -> bool:
        """Whether every input that is differentiated has at least one element."""
        return all(0 not in tensor.shape for tensor in self.tensors if tensor.is_differentiable)

    @property
    def spec(self) -> str:
        """`path:line`, as every report names a spec."""
        return f"{self.path}:{self.line}"

    @property
    def may_have_variables(self) -> bool:
        """Whether inputs that the spec doesn't name may be added: what `build` makes may be a layer."""
        return self.variables is True or (self.variables is None and self.build is not None)

    @property
    def is_raw_op(self) -> bool:
        """Whether an op type is called directly, with its registered gradient."""
        return self.op_type is not None and self.forward is None and self.gradient is None

    @property
    def is_generated(self) -> bool:
        """Whether any value is drawn; such a case is checked at `samples` points."""
        return any(not SOURCES[tensor.source.kind].is_fixed for tensor in self.tensors)
