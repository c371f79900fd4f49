"""The spec format as pydantic models: which keys there are, and the type of each value by itself.

Rules that involve two keys (a generator and a dtype, a binding and its functions) are applied after merging,
in `read_arguments`. Users never see an error in pydantic's words: `expects` attaches
gradcheck's, and `faults` puts them together.

Documents with `exceptions` say what specs can't check, each by name and with its reason. They lie among the
specs and are read with them. An entry is an op type or, for `run --cov`, a function that carries a gradient,
or a module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, create_model

from gradcheck_cli.spec import case
from gradcheck_cli.spec.input_model import (
    LIST,
    MAPPING,
    MOVE,
    ON,
    WORD,
    Binding,
    Chance,
    Count,
    Device,
    DtypeField,
    Expectation,
    Flag,
    Function,
    Label,
    Limits,
    Method,
    MismatchKind,
    Modes,
    ModuleName,
    NonNegative,
    OneOf,
    OpName,
    OpType,
    OpTypes,
    PairExpectation,
    Positive,
    SecondOrder,
    Seed,
    Strict,
    Tensors,
    Text,
    Texts,
    VaryingDtypes,
    VaryingShape,
    Versions,
    by_form,
    expects,
    optional,
    worded,
)
from gradcheck_cli.spec.words import CHECKS, EXCEPTIONS, PAIR_EXPECTATIONS


class OutputModel(Strict):
    """What is known about an output."""

    dtype: DtypeField | None = optional("TensorFlow dtype of the output.", "float32")
    shape: VaryingShape | None = optional("Dimensions; null where one is unknown.", [4, None])


class MismatchModel(Strict):
    """A known mismatch, and its kind."""

    mismatch: MismatchKind = Field(
        description="value: another number than the derivative. none: None where the derivative isn't zero. "
        "nonfinite: NaN or infinity where the derivative is finite. form: another shape or dtype than the "
        "input's. raises: an exception.",
        examples=["none"],
    )


class PairModel(Strict):
    """What to expect of the pairs whose label the key matches."""

    expect: Annotated[
        Annotated[PairExpectation, WORD] | Annotated[MismatchModel, MAPPING],
        by_form(WORD, MAPPING),
    ] = Field(
        default="pass",
        description="Expected outcome of each pair that the key matches; strict, and so is the kind of a "
        "mismatch where one is given. Without it, what the op or case expects.",
        examples=["zero", {"mismatch": "none"}],
    )
    atol: NonNegative | None = optional("Absolute tolerance, as written.", 1e-6)
    rtol: NonNegative | None = optional("Relative tolerance, as written.", 1e-4)
    reason: Text | None = optional("Why; shown in the report.", "the cut is meant")


RULE = worded(PAIR_EXPECTATIONS, "expect", alone=True)


class VariableModel(Strict):
    """How far the variables go whose name the key matches."""

    domain: Limits | None = optional("Bounds for all values and perturbations.", {"low": 0})
    move: Flag = Field(default=True, description=MOVE)
    reason: Text | None = optional("Why it doesn't move; shown in the report.", "a fixed table")


class ToleranceModel(Strict):
    """Tolerances, as written; without them, scaled defaults."""

    atol: NonNegative | None = optional("Absolute tolerance.", 1e-6)
    rtol: NonNegative | None = optional("Relative tolerance.", 1e-4)


class PowerModel(Strict):
    """What random probes must be able to see."""

    size: Positive = Field(description="Relative size of an error in one element.", examples=[0.01])
    miss: Chance = Field(description="Probability with which it may be missed.", examples=[0.1])


class NondeterminismModel(Strict):
    """How far a repeated gradient may differ from the first."""

    atol: NonNegative = Field(description="Absolute difference allowed.", examples=[1e-6])


if TYPE_CHECKING:

    class ChecksModel(Strict):
        """A switch for each of `words.CHECKS`."""

else:
    ChecksModel = create_model(
        "ChecksModel",
        __base__=Strict,
        __doc__="Structural checks, each on or off by its default.",
        **{
            name: (Flag, Field(default=entry.is_on, description=entry.about))
            for name, entry in CHECKS.items()
        },
    )


Outputs = Annotated[
    Annotated[
        Annotated[list[Label], Field(min_length=1), expects("a list of names")],
        LIST,
    ]
    | Annotated[
        Annotated[
            dict[
                Label,
                OutputModel | None,
            ],
            Field(min_length=1),
            expects("a list of names, or a mapping of names to {dtype, shape}"),
        ],
        MAPPING,
    ],
    by_form(MAPPING, LIST),
]


class CaseKeys(Strict):
    """A case under its name, merged over the spec's own keys."""

    inputs: (
        Annotated[
            dict[Label, Tensors],
            Field(min_length=1),
            expects("a mapping of names to inputs"),
        ]
        | None
    ) = optional(
        "Inputs by name, in forward's positional order (for an op type: by argument name). "
        "A list is a list argument; `dict`, `tuple` and `object` make other structures. Arguments that "
        "forward takes only by keyword are passed by name.",
        {"x": {"shape": [3, 2]}},
    )
    attrs: dict[str, Any] | None = optional(
        "Keyword arguments of forward, also settings of a `tf.custom_gradient`, or attributes of the op "
        "type; never differentiated.",
        {"transpose_a": True},
    )
    build: dict[str, Any] | None = optional(
        "Makes forward a factory: it is called with these arguments and returns the function to check. For a "
        "method, `module:Class.method`, or a class whose objects are functions: what makes the object.",
        {"delta": 1.0},
    )
    outputs: Outputs | None = optional(
        "Names of the outputs in order, or a mapping of names to dtype and shape.",
        ["y"],
        {"y": {"dtype": "float32", "shape": [4]}},
    )
    dtypes: VaryingDtypes | None = optional(
        "Runs the case once per dtype, for each input that names none. `floating` stands for the four real "
        "dtypes, `complex` for the two complex ones.",
        ["float32", "float64"],
        ["floating", "complex128"],
    )
    pairs: dict[str, Annotated[PairModel, RULE]] | None = optional(
        "Expectations by pair label dOUT/dIN, with * and ? as wildcards; "
        "of several that match, the last one written wins. `{zero: why}` is an expectation with its reason, "
        "`{mismatch: value, reason: why}` one with its kind.",
        {"dy/dx": {"expect": "disconnected"}},
    )
    tolerance: ToleranceModel | None = optional(
        "Tolerances that replace the scaled defaults.", {"rtol": 1e-4}
    )
    method: Method = Field(
        default=case.Judging.method,
        description="How a pair is judged. auto: central differences, with a ladder of steps where in doubt, "
        "and random probes where a Jacobian has more than half a million elements, structural zeros aside. "
        "full: every element, whatever the size. probe: random probes above 4,096 elements. central, ladder: "
        "only this way of differencing.",
    )
    checks: ChecksModel | None = optional("Structural checks to turn off, or on.", {"linearity": False})
    nondeterminism: NondeterminismModel | None = optional(
        "For a gradient whose sums have no fixed order: how far it may differ when it is repeated.",
        {"atol": 1e-6},
    )
    unreached: dict[str, Text] | None = optional(
        "Sides of branches that the inputs can't take, as the report names them, with * and ? as wildcards; "
        "each with the reason. They don't count as never seen.",
        {"x > 3.5 true": "x is a probability"},
    )
    expect: Annotated[
        Annotated[Expectation, WORD] | Annotated[MismatchModel, MAPPING],
        by_form(WORD, MAPPING),
    ] = Field(
        default="pass",
        description="mismatch: every pair is known to be wrong, unless `pairs` says otherwise; "
        "strict, and so is the kind if it is given.",
        examples=["mismatch", {"mismatch": "none"}],
    )
    reason: Text | None = optional(
        "Why a mismatch is expected; shown in the report.", "returns the derivative of (c + k) * d"
    )
    reference: Function | None = optional(
        "Function whose derivative a surrogate gradient is meant to be.", "surrogates:sigmoid"
    )
    reference_forward: Flag = Field(default=False, description="The forward must also equal the reference.")
    implicit: Flag = Field(
        default=False,
        description="The forward draws a sample, and `reference` makes its distribution from the inputs: an "
        "object with `cdf` and `prob`. The truth is the implicit reparameterisation, -(dF/dp) / f.",
    )
    freeze: Flag | None = optional(
        "Whether a stop_gradient on backpropagation's path keeps its value while the inputs move. true: yes, "
        "it is meant; false: never; unset: a pair is inconclusive if that changes its derivative. "
        "Random draws are always held.",
        ON,
    )
    modes: Modes = Field(
        default=["graph"],
        description="How TensorFlow runs the op: traced (graph), traced with unknown dimensions (dynamic), "
        "called under a GradientTape (eager), compiled for the CPU (xla). Each is checked, and their "
        "gradients are compared.",
        examples=[["graph", "eager"]],
    )
    variables: (
        Annotated[
            Annotated[Flag, WORD] | Annotated[dict[Text, VariableModel], MAPPING],
            by_form(WORD, MAPPING),
        ]
        | None
    ) = optional(
        "true makes every trainable variable that the forward uses an input of its own, by its name; false "
        "makes none. Default: those of a Keras layer or model, and those that a custom gradient has "
        "gradients for. A mapping of names (`*` is any text) says how far variables go, and stands for true.",
        ON,
        {"*/gamma": {"domain": {"low": 0}}},
    )
    covers: OpTypes | None = optional(
        "Op types whose own registered gradient function must be seen to run anywhere in the case's backward "
        "pass; otherwise the case is an error. An op_type without forward and gradient covers itself.",
        ["StatelessIf", "MatMul"],
    )
    tensorflow: Versions | None = optional(
        "Versions of TensorFlow that the case is for; with any other version it is skipped.", ">=2.18"
    )
    needs: Texts | None = optional(
        "Modules that the case needs; if one isn't installed, it is skipped.", ["tensorflow_probability"]
    )
    second_order: Annotated[
        Annotated[Flag, WORD] | Annotated[SecondOrder, LIST],
        by_form(WORD, LIST),
    ] = Field(
        default=False,
        description="Also checks the gradient's own gradient: pairs d2OUT/dIN.dIN, and d2OUT/dIN.du for the "
        "upstream u. A list of dtypes or modes does so only in these of the case; rules for such pairs are "
        "ignored in the others.",
        examples=[ON, ["float64", "complex128"], ["graph"]],
    )
    device: Device | None = optional("Where to run; skipped if there is no such device.", "GPU:0")
    samples: Count = Field(
        default=case.Judging.samples,
        description="Points at which drawn values are checked. By default up to 4 if an input of at most 8 "
        "elements is drawn from that few booleans, integers or choices, so that each is used in turn.",
    )
    seed: Seed = Field(default=case.Case.seed, description="Seed of the drawn values.")
    power: PowerModel | None = optional(
        f"What random probes must detect. Default: an error of {case.Power.size:g} in one element, missed "
        f"with a probability of at most {case.Power.miss:g}.",
        {"size": 0.1, "miss": 0.2},
    )
    timeout: Positive | None = optional(
        "Seconds after which a case is stopped, if cases run in separate processes.", 120
    )
    tags: Texts = Field(default=[], description="Labels for selection.", examples=[["slow"]])
    description: Text | None = optional("What the op is.", "Two chained sparse convolutions")


class CaseModel(CaseKeys):
    """A case with its name."""

    name: OpName = Field(description="Name of the case, unique within the op.", examples=["square"])


Cases = Annotated[
    Annotated[list[CaseModel], LIST] | Annotated[dict[str, CaseKeys | None], MAPPING],
    by_form(LIST, MAPPING),
    # `load` reads each case alone, over its op.
    BeforeValidator(lambda cases: [] if isinstance(cases, dict | list) else cases),
]


class Defaults(CaseKeys):
    """Keys merged under each op of the file."""

    op: OpName | None = optional(
        "Name of the op; unique in its file. In it, `{op_type}` stands for the op type, or for the first "
        "that the op covers. Default: the op type, or the file's stem.",
        "huber",
        "tf_{op_type}",
    )
    module: ModuleName | None = optional(
        "Module of the functions that are written without one, such as `forward: .huber`.", "package.module"
    )
    forward: Function | None = optional("The function under test.", "package.module:function")
    op_type: OpType | None = optional(
        "TensorFlow's name of a kernel, instead of forward. A list makes an op of each, with the same keys.",
        "MatMul",
        ["Sin", "Cos"],
    )
    gradient: Function | None = optional(
        "Gradient function (op, *upstream); {numpy: module:function} takes (*upstream, *inputs).",
        "gradients:square_grad",
        {"numpy": "gradients:square_grad"},
    )
    binding: Binding | None = optional("How the gradient is attached.", "py_func")
    cases: Cases | None = optional(
        "Further cases, each merged over the spec's own keys. A list replaces the cases of the defaults; a "
        "mapping of names to cases extends them, and null removes one.",
        [{"name": "square", "inputs": {"a": {"shape": [4, 4]}}}],
        {"square": {"inputs": {"a": [4, 4]}}},
    )
    cases_from: Texts | None = optional("Sets of cases, from `case_sets`, that come first.", ["unary"])
    case_sets: dict[Label, Cases] | None = optional(
        "Sets of cases by name, which the ops take by `cases_from`; written like `cases`. In defaults.",
        {"unary": {"empty": {"inputs": {"x": [0]}}}},
    )


class OpModel(Defaults):
    """One op."""


class OpsFile(Strict):
    """Several ops in one document; built only for the JSON Schema, as `load` reads the ops one by one."""

    model_config = ConfigDict(defer_build=True)

    ops: Annotated[list[OpModel], Field(min_length=1), expects("a list of ops")] = Field(
        description="The ops, each as in a separate document.",
        examples=[[{"op": "square", "forward": "tensorflow:square", "inputs": {"x": {"shape": [3]}}}]],
    )
    defaults: Defaults | None = optional("Merged under each op.", {"dtypes": ["float32", "float64"]})


class ExceptionModel(Strict):
    """Why an op type isn't checked."""

    kind: Annotated[str, OneOf(*EXCEPTIONS)] = Field(
        description="gpu, tpu, dtensor: it needs such a device or mesh. removed: TensorFlow makes no such op "
        "any more. raises: its gradient, or the op, raises by design. nothing: it has no floating output or "
        "input to compare. crash: it ends the process. other: what the reason says.",
        examples=["gpu"],
    )
    reason: Text = Field(
        description="Why, in the words that a reader needs.", examples=["has a kernel for GPUs only"]
    )
    tensorflow: Versions | None = optional(
        "Versions of TensorFlow in which it can't be checked; with any other it counts as missing.", "<2.18"
    )


class ExceptionsFile(Strict):
    """Op types that the specs beside it can't check."""

    model_config = ConfigDict(defer_build=True)

    # Always present, or it is another kind of document; that it may be left out avoids a second fault about a
    # broken one.
    exceptions: (
        Annotated[
            dict[str, Annotated[ExceptionModel, worded(EXCEPTIONS, "kind")]],
            Field(min_length=1),
            expects("a mapping of op types to {kind, reason}"),
        ]
        | None
    ) = optional(
        "By op type; for `run --cov` also by function, as module:function, and by module. "
        "`{gpu: why}` is the kind with its reason.",
        {"NcclReduce": {"kind": "gpu", "reason": "has a kernel for GPUs only"}},
    )


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
        return case.version_fits(version, self.tensorflow)
