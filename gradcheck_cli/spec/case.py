"""A concrete case: one op with its inputs, dtypes and expectations, after every merge; plain frozen data.

This module doesn't know YAML or TensorFlow: the backend and the checks read these values. Mappings
are plain dicts that nobody changes: a case is sent to worker processes, and a mapping proxy can't be pickled
(nor, up to Python 3.11, be the default of a dataclass field).

The rule of a spec that governs a pair is a glob over labels such as `dy/dvalues[0]`. Only `*` (any text) and
`?` (any character) are special: brackets are part of labels. If several globs match a label, the last one
wins, so exceptions follow their rule; a case's rules come after its op's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from gradcheck_cli.spec.words import DTYPE_KINDS, INTEGER_RANGES, ON_REQUEST, SOURCES

Interval = tuple[float, float]
UNBOUNDED: Interval = (-math.inf, math.inf)


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


def kind_of(dtype: str) -> str:
    """Return which family a dtype belongs to: float, complex, integer, bool or string."""
    if dtype in INTEGER_RANGES:
        return "integer"
    if dtype in DTYPE_KINDS["complex"]:
        return "complex"
    if dtype in DTYPE_KINDS["floating"]:
        return "float"
    return "bool" if dtype == "bool" else "string"


@dataclass(frozen=True)
class InputSpec:
    """One tensor that goes into the op.

    `domain` holds the bounds that no perturbation leaves. `scale` is the typical magnitude, for
    the step. With `differentiate: false` the tensor isn't differentiated. If the op is a vjp and this is an
    upstream, `upstream_of` names the forward's output.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    source: Source = field(default_factory=Source)
    differentiate: bool = True
    domain: Interval = UNBOUNDED
    scale: float | None = None
    away_from: tuple[float, ...] = ()
    min_gap: float | None = None
    symmetric: bool = False  # a matrix that stays symmetric (Hermitian) when it moves
    upstream_of: str = ""
    keeps: str = ""  # why its value is the same at every point, although it is stated; empty if it moves

    @property
    def is_variable(self) -> bool:
        """Whether this is a variable that the forward uses, not an argument of it."""
        return self.source.kind == "variable"

    @property
    def is_stated(self) -> bool:
        """Whether its values are written down, so that they are the same at every sample point."""
        return SOURCES[self.source.kind].is_fixed and not self.is_variable

    @property
    def is_limited(self) -> bool:
        """Whether some values of a drawn input must be drawn again."""
        return bool(self.away_from) or self.domain != UNBOUNDED

    @property
    def is_differentiable(self) -> bool:
        """Whether gradients with respect to this tensor exist: a float or complex dtype, not switched off."""
        return self.differentiate and self.dtype.startswith(("float", "bfloat", "complex"))


@dataclass(frozen=True)
class Form:
    """How an argument is built from tensors: one node of its structure, which the backend builds."""

    # "tensor"; "list", "tuple", "dict" or "object", of `parts`; "sparse" (of the tensors indices, values,
    # dense_shape) or "ragged" (of flat values and then row splits, the outermost first)
    kind: str = "tensor"
    parts: tuple[Form, ...] = ()  # what a structure holds, in order
    keys: tuple[str, ...] = ()  # the names of the parts of a dict or an object
    target: str = ""  # the class of an object, as `module:Class`
    shape: tuple[int, ...] = ()  # the dense shape of a sparse tensor
    splits: int = 0  # how many ragged dimensions a ragged tensor has

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
class VariableRule:
    """What a spec says of the variables whose name matches `glob`."""

    glob: str
    domain: Interval = UNBOUNDED
    keeps: str = ""  # why they keep their value at every point; empty if they move


@dataclass(frozen=True)
class StatedTolerance:
    """Absolute and relative tolerance as written in a spec; `None` leaves the scaled default."""

    atol: float | None = None
    rtol: float | None = None


@dataclass(frozen=True)
class Power:
    """What random probes must be able to see."""

    size: float = 0.01  # relative error in one element
    miss: float = 0.1  # the probability with which it may be missed

    def __str__(self) -> str:
        return f"{self.size:g}:{self.miss:g}"


@dataclass(frozen=True)
class Given:
    """How a function that was given in Python is called; a spec has none of this."""

    # takes the flat tensors, and returns the positional and the keyword arguments
    pack: Callable[[Sequence[object]], tuple[list[object], dict[str, object]]]
    # the only trainable variables that are inputs; `None`: as `CodeUnderTest.variables` says
    variables: tuple[object, ...] | None = None


FOLDER_DEFAULTS = "defaults.yaml"  # contains only `defaults`, which are merged under each spec of its folder


@dataclass(frozen=True)
class Origin:
    """Where a case is written. One that no file holds, such as the case of an op alone, has the defaults."""

    path: str = ""  # the spec's file, as the user named it
    folder: str = ""  # the spec's folder, absolute; it is importable, and `file:` paths are relative to it
    line: int = 0  # 1-based line of the document (or of the entry in `ops:`)
    variant: str | None = None  # the entry of `dtypes` that made this case, or `None`
    tags: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, Path]:
        """The files that it is written in, there or not."""
        return Path(self.folder, Path(self.path).name), Path(self.folder, FOLDER_DEFAULTS)


@dataclass(frozen=True)
class CodeUnderTest:
    """The code that a case checks: its functions, how they are called, and how the gradient is bound."""

    forward: FunctionRef | None = None  # `None` where `op_type` alone names a raw op
    op_type: str | None = None
    binding: str = "autodiff"  # autodiff, custom_gradient, override, py_func or defun; already resolved
    gradient: FunctionRef | None = None
    attrs: Mapping[str, object] = field(default_factory=dict)
    # keyword arguments that make `forward` a factory; `None` if it isn't one
    build: Mapping[str, object] | None = None
    # whether each trainable variable that the forward uses is an input of its own; `None` for those of a
    # Keras layer or model, and those that a custom gradient has gradients for. The variables aren't known
    # when the spec is read: the backend adds them to the arguments.
    variables: bool | None = None
    variable_rules: tuple[VariableRule, ...] = ()
    # op types whose registered gradient functions its backward pass calls, by the spec
    covers: tuple[str, ...] = ()
    given: Given | None = None  # how the forward is called, where a function was given in Python

    @property
    def may_have_variables(self) -> bool:
        """Whether inputs that the spec doesn't name may be added: what `build` makes may be a layer."""
        return self.variables is True or (self.variables is None and self.build is not None)

    @property
    def is_raw_op(self) -> bool:
        """Whether an op type is called directly, with its registered gradient."""
        return self.op_type is not None and self.forward is None and self.gradient is None


@dataclass(frozen=True)
class Reference:
    """The function whose derivative the gradient should be, instead of the forward's own."""

    function: FunctionRef
    equals_forward: bool = False  # whether the forward must also have its values
    implicit: bool = False  # whether it makes the distribution of the sample that the forward draws


@dataclass(frozen=True)
class Expectations:
    """What a spec expects of a case's pairs: of those that no rule of `pairs` covers, and by rules."""

    expect: str = "pass"  # pass, mismatch
    kind: str = ""  # of the mismatch, if it is given
    reason: str = ""
    pairs: tuple[PairRule, ...] = ()


@dataclass(frozen=True)
class Judging:
    """How a case's pairs are judged, and what is checked beside them."""

    samples: int = 2  # points at which drawn values are checked
    tolerance: StatedTolerance = StatedTolerance()
    # how a pair is judged: element by element, by random probes, or depending on its size
    method: str = "auto"
    power: Power = Power()  # what probes must be able to see
    budget: float = 10.0  # seconds that `auto` may take to judge the case, beyond the necessary minimum
    # whether probes are refused, so that pairs that are too large otherwise are inconclusive
    full_only: bool = False
    # whether a `stop_gradient` on backpropagation's path is held while inputs move; `None`: the spec doesn't
    # say
    freeze: bool | None = None
    checks_off: frozenset[str] = ON_REQUEST  # names of the structural checks that are off in the spec
    nondeterminism: float = 0.0  # how far a repeated gradient may differ from the first, absolute
    # the modes in which the vjp is checked as a function of its own, of the inputs and of the upstream
    second_order: tuple[str, ...] = ()
    # sides of branches that the inputs can't take: globs, each with the reason
    unreached: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Running:
    """Where and how long a case runs, and what must be there for it."""

    # the modes that the case is checked in, in order; `in_each_mode` makes a case of each
    modes: tuple[str, ...] = ("graph",)
    device: str | None = None  # where it runs, such as "GPU:0"; `None` leaves it to TensorFlow
    timeout: float | None = None  # the time limit in seconds; `None` leaves it to the command line
    tensorflow: str = ""  # the TensorFlow versions that it is for; empty for any
    needs: tuple[str, ...] = ()  # modules that must be installed for it


@dataclass(frozen=True)
class Wanted:
    """What a command wants of a case beside its verdicts; a spec has none of this."""

    # whether a report or a baseline will record its pairs, which then need fingerprints
    records_fingerprint: bool = True
    keeps_jacobians: bool = False  # whether a pair's result has both Jacobians as arrays
    figures_of: str = ""  # which pairs get a picture: "doubtful" for all that aren't a plain pass, or a label
    point: str = ""  # the values that replace those of the first sample point, as `--point` has them
    search: float = 0.0  # seconds for which to search for a point at which the gradient is wrong
    # ways in which its gradients are corrupted, to test whether that is found; empty for a normal check
    corruptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One op at one set of inputs and dtypes; one group of rows in the report."""

    op: str
    name: str  # the case's name; "default" for the spec's own inputs
    dtype: str  # what the report shows as the case's dtype
    arguments: tuple[Argument, ...]
    outputs: tuple[OutputSpec, ...] = ()  # named outputs; empty where the spec names none
    mode: str = "graph"  # the mode of this case: graph, dynamic, eager or xla
    seed: int = 0  # of everything that is drawn
    code: CodeUnderTest = field(default_factory=CodeUnderTest)
    reference: Reference | None = None
    expected: Expectations = Expectations()
    judging: Judging = Judging()
    running: Running = Running()
    origin: Origin = Origin()
    wanted: Wanted = Wanted()
    full_op: str = ""  # see `CaseResult.full_op`

    @property
    def tensors(self) -> tuple[InputSpec, ...]:
        """All input tensors in positional order, lists flattened."""
        return tuple(tensor for argument in self.arguments for tensor in argument.tensors)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the pairs that the spec implies; an output without a name is called y."""
        outputs = [output.name for output in self.outputs] or ["y"]
        inputs = [tensor.name for tensor in self.tensors if tensor.is_differentiable]
        return tuple(f"d{output}/d{name}" for output in outputs for name in inputs)

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it in all of its modes; see `CaseResult.key`."""
        return self.full_op or self.op, self.name, self.dtype

    @property
    def mode_key(self) -> tuple[str, str, str, str]:
        """What identifies it in one of its modes; see `CaseResult.mode_key`."""
        return *self.key, self.mode

    @property
    def file(self) -> str:
        """The file of its spec."""
        return self.origin.path

    @property
    def spec(self) -> str:
        """`path:line`, as every report names a spec."""
        return f"{self.origin.path}:{self.origin.line}"

    @property
    def is_generated(self) -> bool:
        """Whether any value is drawn; such a case is checked at `samples` points."""
        return any(not SOURCES[tensor.source.kind].is_fixed for tensor in self.tensors)


def is_of_second_order(glob: str) -> bool:
    """Whether a rule can be for pairs of second order alone."""
    return glob.startswith("d2")


def stated_rule(rules: Sequence[PairRule], label: str) -> PairRule | None:
    """Return the rule that governs a pair: the last one written that matches its label, or `None`."""
    return next((rule for rule in reversed(rules) if matches(rule.glob, label)), None)


def unmatched_rules(rules: Sequence[PairRule], labels: Iterable[str]) -> tuple[PairRule, ...]:
    """Return the rules that match none of the labels: they are probably misspelt, and have no effect."""
    labels = list(labels)
    return tuple(rule for rule in rules if not any(matches(rule.glob, label) for label in labels))


def matches(glob: str, label: str) -> bool:
    """Tell whether a glob matches a whole label."""
    return _pattern(glob).fullmatch(label) is not None


def could_match(glob: str, label: str) -> bool:
    """Tell whether a glob could match a pair of a part of the output, as `dy.loss/dx` is one of `dy/dx`."""
    output_glob, slash, input_glob = glob.partition("/")
    output, _, input_name = label.partition("/")
    if not slash or not matches(input_glob, input_name):
        return False
    return any(
        char in ".[" and matches(output_glob[:index], output)
        for index, char in enumerate(output_glob)
        if index
    )


@lru_cache(maxsize=1024)
def _pattern(glob: str) -> re.Pattern[str]:
    # Several stars in a row are one star: a regex with many `.*.*` backtracks for a very long time.
    glob = re.sub(r"\*+", "*", glob)
    return re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in glob), re.DOTALL)


def in_each_mode(
    cases: Iterable[Case], modes: Sequence[str] = (), device: str | None = None
) -> tuple[Case, ...]:
    """Return each case once for each of its modes, in the order in which the spec names them.

    Args:
        modes: replace the specs' own, if there are any; a mode named twice counts once.
        device: replaces the specs' own.
    """
    made: list[Case] = []
    for case in cases:
        own = tuple(dict.fromkeys(modes)) or case.running.modes
        running = replace(case.running, modes=own, device=device or case.running.device)
        made += [_in_mode(replace(case, running=running), mode) for mode in own]
    return tuple(made)


def _in_mode(case: Case, mode: str) -> Case:
    case = replace(case, mode=mode)
    if not case.judging.second_order or mode in case.judging.second_order:
        return case
    rules = tuple(rule for rule in case.expected.pairs if not is_of_second_order(rule.glob))
    return replace(
        case,
        expected=replace(case.expected, pairs=rules),
        judging=replace(case.judging, second_order=()),
    )


def first_order_alone(case: Case, checks_off: frozenset[str]) -> Case:
    """Return a case for another look at its pairs, without second order, fingerprints and these checks."""
    return replace(
        case,
        judging=replace(case.judging, second_order=(), checks_off=case.judging.checks_off | checks_off),
        wanted=replace(case.wanted, records_fingerprint=False),
    )


# Releases of TensorFlow from the oldest that gradcheck runs with, and some that may come.
_RELEASES = [f"2.{minor}.{patch}" for minor in range(16, 60) for patch in range(5)] + ["3.0.0", "999.0.0"]


def is_specifier(value: object) -> bool:
    """Tell whether a value is text that names versions, such as `>=2.18`, with which gradcheck can run."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        specifier = SpecifierSet(value) if isinstance(value, str) else ()
    except InvalidSpecifier:
        return False
    return len(specifier) > 0 and any(version_fits(release, str(value)) for release in _RELEASES)


def version_fits(version: str, specifier: str) -> bool:
    """Tell whether a version is among those that a specifier names; an empty one names all.

    A pre-release counts as the release it precedes: 2.22.0rc1 is among `>=2.22`, as its op types are.
    """
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    return SpecifierSet(specifier).contains(Version(version).base_version)


@dataclass(frozen=True)
class Excepted:
    """One op type that can't be checked."""

    op_type: str  # its name, or a function's as `module:qualname`, or a module's
    kind: str  # one of `words.EXCEPTIONS`
    reason: str  # why
    place: str  # "path:line", where it is written
    tensorflow: str = ""  # the versions of TensorFlow for which it holds; empty for any

    def holds(self, version: str) -> bool:
        """Whether it applies to a version of TensorFlow."""
        return version_fits(version, self.tensorflow)
