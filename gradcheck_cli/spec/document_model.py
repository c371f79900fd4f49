"""The spec format as pydantic models: which keys there are, and the type of each value by itself.

Rules that involve two keys (a generator and a dtype, a binding and its functions) are applied after merging,
in `read_arguments`. Users never see an error in pydantic's words: `expects` attaches
gradcheck's, and `faults` puts them together.

Documents with `exceptions` say what specs can't check, each by name and with its reason. They lie among the
specs and are read with them. An entry is an op type or, for `run --cov`, a function that carries a gradient,
or a module.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag

from gradcheck_cli.spec import case
from gradcheck_cli.spec import input_model as fields
from gradcheck_cli.spec.words import CHECKS, EXCEPTIONS

if TYPE_CHECKING:
    from gradcheck_cli.spec.faults import FaultLog
    from gradcheck_cli.spec.yaml_tree import Node


class OutputModel(fields.Strict):
    """What is known about an output."""

    dtype: fields.DtypeField | None = fields.optional("TensorFlow dtype of the output.", "float32")
    shape: fields.VaryingShape | None = fields.optional("Dimensions; null where one is unknown.", [4, None])


class MismatchModel(fields.Strict):
    """A known mismatch, and its kind."""

    mismatch: fields.MismatchKind = Field(
        description="value: another number than the derivative. none: None where the derivative isn't zero. "
        "nonfinite: NaN or infinity where the derivative is finite. form: another shape or dtype than the "
        "input's. raises: an exception.",
        examples=["none"],
    )


class PairModel(fields.Strict):
    """What to expect of the pairs whose label the key matches."""

    expect: Annotated[
        Annotated[fields.PairExpectation, Tag(fields.WORD)] | Annotated[MismatchModel, Tag(fields.MAPPING)],
        Discriminator(fields.word_or_mapping),
    ] = Field(
        default="pass",
        description="Expected outcome of each pair that the key matches; strict, and so is the kind of a "
        "mismatch where one is given. Without it, what the op or case expects.",
        examples=["zero", {"mismatch": "none"}],
    )
    atol: fields.NonNegative | None = fields.optional("Absolute tolerance, as written.", 1e-6)
    rtol: fields.NonNegative | None = fields.optional("Relative tolerance, as written.", 1e-4)
    reason: fields.Text | None = fields.optional("Why; shown in the report.", "the cut is meant")


class VariableModel(fields.Strict):
    """How far the variables go whose name the key matches."""

    domain: fields.Domain | None = fields.optional("Bounds for all values and perturbations.", {"low": 0})
    move: fields.Flag = Field(default=True, description=fields.MOVE)
    reason: fields.Text | None = fields.optional("Why it doesn't move; shown in the report.", "a fixed table")


class ToleranceModel(fields.Strict):
    """Tolerances, as written; without them, scaled defaults."""

    atol: fields.NonNegative | None = fields.optional("Absolute tolerance.", 1e-6)
    rtol: fields.NonNegative | None = fields.optional("Relative tolerance.", 1e-4)


class PowerModel(fields.Strict):
    """What random probes must be able to see."""

    size: fields.Positive = Field(description="Relative size of an error in one element.", examples=[0.01])
    miss: fields.Chance = Field(description="Probability with which it may be missed.", examples=[0.1])


class NondeterminismModel(fields.Strict):
    """How far a repeated gradient may differ from the first."""

    atol: fields.NonNegative = Field(description="Absolute difference allowed.", examples=[1e-6])


if TYPE_CHECKING:

    class ChecksModel(fields.Strict):
        """A switch for each of `words.CHECKS`."""

else:
    ChecksModel = fields.make_model(
        "ChecksModel",
        "Structural checks, each on unless it is set to false.",
        {name: (fields.Flag, Field(default=True, description=check.about)) for name, check in CHECKS.items()},
    )


Outputs = Annotated[
    Annotated[
        Annotated[list[fields.Label], Field(min_length=1), fields.expects("a list of names")],
        Tag(fields.LIST),
    ]
    | Annotated[
        Annotated[
            dict[
                fields.Label,
                Annotated[
                    Annotated[OutputModel, Tag(fields.MAPPING)] | Annotated[None, Tag(fields.NOTHING)],
                    Discriminator(fields.form_of),
                ],
            ],
            Field(min_length=1),
            fields.expects("a list of names, or a mapping of names to {dtype, shape}"),
        ],
        Tag(fields.MAPPING),
    ],
    Discriminator(fields.form_of),
]


class CaseKeys(fields.Strict):
    """The keys that an op and each of its cases may hold."""

    inputs: (
        Annotated[
            dict[fields.Label, fields.Tensors],
            Field(min_length=1),
            fields.expects("a mapping of names to inputs"),
        ]
        | None
    ) = fields.optional(
        "Inputs by name, in forward's positional order (for an op type: by argument name). "
        "A list is a list argument; `dict`, `tuple` and `object` make other structures. Arguments that "
        "forward takes only by keyword are passed by name.",
        {"x": {"shape": [3, 2]}},
    )
    attrs: dict[str, Any] | None = fields.optional(
        "Keyword arguments of forward, also settings of a `tf.custom_gradient`, or attributes of the op "
        "type; never differentiated.",
        {"transpose_a": True},
    )
    build: dict[str, Any] | None = fields.optional(
        "Makes forward a factory: it is called with these arguments and returns the function to check. For a "
        "method, `module:Class.method`: what makes the object.",
        {"delta": 1.0},
    )
    outputs: Outputs | None = fields.optional(
        "Names of the outputs in order, or a mapping of names to dtype and shape.",
        ["y"],
        {"y": {"dtype": "float32", "shape": [4]}},
    )
    dtypes: fields.VaryingDtypes | None = fields.optional(
        "Runs the case once per dtype, for each input that names none. `floating` stands for the four real "
        "dtypes, `complex` for the two complex ones.",
        ["float32", "float64"],
        ["floating", "complex128"],
    )
    pairs: dict[str, PairModel] | None = fields.optional(
        "Expectations by pair label dOUT/dIN, with * and ? as wildcards; "
        "of several that match, the last one written wins. `{zero: why}` is an expectation with its reason, "
        "`{mismatch: value, reason: why}` one with its kind.",
        {"dy/dx": {"expect": "disconnected"}},
    )
    tolerance: ToleranceModel | None = fields.optional(
        "Tolerances that replace the scaled defaults.", {"rtol": 1e-4}
    )
    method: fields.Method = Field(
        default=case.Judging.method,
        description="How a pair is judged. auto: central differences, with a ladder of steps where in doubt, "
        "and random probes where a Jacobian has more than half a million elements, structural zeros aside. "
        "full: every element, whatever the size. probe: random probes above 4,096 elements. central, ladder: "
        "only this way of differencing. complex_step: for an analytic forward.",
    )
    checks: ChecksModel | None = fields.optional("Structural checks to turn off.", {"linearity": False})
    nondeterminism: NondeterminismModel | None = fields.optional(
        "For a gradient whose sums have no fixed order: how far it may differ when it is repeated.",
        {"atol": 1e-6},
    )
    unreached: dict[str, fields.Text] | None = fields.optional(
        "Sides of branches that the inputs can't take, as the report names them, with * and ? as wildcards; "
        "each with the reason. They don't count as never seen.",
        {"x > 3.5 true": "x is a probability"},
    )
    expect: Annotated[
        Annotated[fields.Expectation, Tag(fields.WORD)] | Annotated[MismatchModel, Tag(fields.MAPPING)],
        Discriminator(fields.word_or_mapping),
    ] = Field(
        default="pass",
        description="mismatch: every pair is known to be wrong, unless `pairs` says otherwise; "
        "strict, and so is the kind if it is given.",
        examples=["mismatch", {"mismatch": "none"}],
    )
    reason: fields.Text | None = fields.optional(
        "Why a mismatch is expected; shown in the report.", "returns the derivative of (c + k) * d"
    )
    reference: fields.Module | None = fields.optional(
        "Function whose derivative a surrogate gradient is meant to be.", "surrogates:sigmoid"
    )
    reference_forward: fields.Flag = Field(
        default=False, description="The forward must also equal the reference."
    )
    implicit: fields.Flag = Field(
        default=False,
        description="The forward draws a sample, and `reference` makes its distribution from the inputs: an "
        "object with `cdf` and `prob`. The truth is the implicit reparameterisation, -(dF/dp) / f.",
    )
    freeze: fields.Flag | None = fields.optional(
        "Whether a stop_gradient on backpropagation's path keeps its value while the inputs move. true: yes, "
        "it is meant; false: never; unset: a pair is inconclusive if that changes its derivative. "
        "Random draws are always held.",
        fields.ON,
    )
    modes: fields.Modes = Field(
        default=["graph"],
        description="How TensorFlow runs the op: traced (graph), traced with unknown dimensions (dynamic), "
        "called under a GradientTape (eager), compiled for the CPU (xla). Each is checked, and their "
        "gradients are compared.",
        examples=[["graph", "eager"]],
    )
    variables: Annotated[
        Annotated[fields.Flag, Tag(fields.WORD)]
        | Annotated[dict[fields.Text, VariableModel], Tag(fields.MAPPING)]
        | Annotated[None, Tag(fields.NOTHING)],
        Discriminator(fields.flag_or_mapping),
    ] = fields.optional(
        "true makes every trainable variable that the forward uses an input of its own, by its name; false "
        "makes none. Default: those of a Keras layer or model, and those that a custom gradient has "
        "gradients for. A mapping of names (`*` is any text) says how far variables go, and stands for true.",
        fields.ON,
        {"*/gamma": {"domain": {"low": 0}}},
    )
    covers: fields.OpTypes | None = fields.optional(
        "Op types whose own registered gradient function must be seen to run anywhere in the case's backward "
        "pass; otherwise the case is an error. An op_type without forward and gradient covers itself.",
        ["StatelessIf", "MatMul"],
    )
    tensorflow: fields.Versions | None = fields.optional(
        "Versions of TensorFlow that the case is for; with any other version it is skipped.", ">=2.18"
    )
    needs: fields.Texts | None = fields.optional(
        "Modules that the case needs; if one isn't installed, it is skipped.", ["tensorflow_probability"]
    )
    second_order: Annotated[
        Annotated[fields.Flag, Tag(fields.WORD)] | Annotated[fields.SecondOrder, Tag(fields.LIST)],
        Discriminator(fields.word_or_list),
    ] = Field(
        default=False,
        description="Also checks the gradient's own gradient: pairs d2OUT/dIN.dIN, and d2OUT/dIN.du for the "
        "upstream u. A list of dtypes or modes does so only in these of the case; rules for such pairs are "
        "ignored in the others.",
        examples=[fields.ON, ["float64", "complex128"], ["graph"]],
    )
    device: fields.Device | None = fields.optional(
        "Where to run; skipped if there is no such device.", "GPU:0"
    )
    samples: fields.Count = Field(
        default=case.Judging.samples,
        description="Points at which drawn values are checked. By default up to 4 if an input of at most 8 "
        "elements is drawn from that few booleans, integers or choices, so that each is used in turn.",
    )
    seed: fields.Seed = Field(default=case.Case.seed, description="Seed of the drawn values.")
    budget: fields.Positive | None = fields.optional(
        "Seconds of processor time in which `method: auto` judges a case, apart from the necessary minimum; "
        f"what is unseen after that is inconclusive. Default: {case.Judging.budget:g}.",
        30,
    )
    power: PowerModel | None = fields.optional(
        f"What random probes must detect. Default: an error of {case.Power.size:g} in one element, missed "
        f"with a probability of at most {case.Power.miss:g}.",
        {"size": 0.1, "miss": 0.2},
    )
    timeout: fields.Positive | None = fields.optional(
        "Seconds after which a case is stopped, if cases run in separate processes.", 120
    )
    tags: fields.Texts = Field(default=[], description="Labels for selection.", examples=[["slow"]])
    description: fields.Text | None = fields.optional("What the op is.", "Two chained sparse convolutions")


class CaseModel(CaseKeys):
    """A further case, merged over the spec's own keys."""

    name: fields.OpName = Field(description="Name of the case, unique within the op.", examples=["square"])


class Defaults(CaseKeys):
    """Keys merged under each op of the file."""

    op: fields.OpName | None = fields.optional(
        "Name of the op; unique. In it, `{op_type}` stands for the op type, or for the first that the op "
        "covers. Default: the op type, or the file's stem.",
        "huber",
        "tf_{op_type}",
    )
    module: fields.ModuleName | None = fields.optional(
        "Module of the functions that are written without one, such as `forward: .huber`.", "package.module"
    )
    forward: fields.Module | None = fields.optional("The function under test.", "package.module:function")
    op_type: fields.OpType | None = fields.optional(
        "TensorFlow's name of a kernel, instead of forward. A list makes an op of each, with the same keys.",
        "MatMul",
        ["Sin", "Cos"],
    )
    gradient: fields.Module | None = fields.optional(
        "Gradient function (op, *upstream); {numpy: module:function} takes (*upstream, *inputs).",
        "gradients:square_grad",
        {"numpy": "gradients:square_grad"},
    )
    binding: fields.Binding | None = fields.optional("How the gradient is attached.", "py_func")
    cases: list[CaseModel] | None = fields.optional(
        "Further cases, each merged over the spec's own keys. A list replaces the cases of the defaults; a "
        "mapping of names to cases extends them, and null removes one.",
        [{"name": "square", "inputs": {"a": {"shape": [4, 4]}}}],
        {"square": {"inputs": {"a": [4, 4]}}},
    )
    cases_from: fields.Texts | None = fields.optional(
        "Sets of cases, from `case_sets`, that come first.", ["unary"]
    )
    case_sets: dict[fields.Label, list[CaseModel]] | None = fields.optional(
        "Sets of cases by name, which the ops take by `cases_from`; written like `cases`. In defaults.",
        {"unary": {"empty": {"inputs": {"x": [0]}}}},
    )


class OpModel(Defaults):
    """One op."""


class OpsFile(fields.Strict):
    """Several ops in one document; built only for the JSON Schema, as `load` reads the ops one by one."""

    model_config = ConfigDict(defer_build=True)

    ops: Annotated[list[OpModel], Field(min_length=1), fields.expects("a list of ops")] = Field(
        description="The ops, each as in a separate document.",
        examples=[[{"op": "square", "forward": "tensorflow:square", "inputs": {"x": {"shape": [3]}}}]],
    )
    defaults: Defaults | None = fields.optional("Merged under each op.", {"dtypes": ["float32", "float64"]})


class ExceptionModel(fields.Strict):
    """Why an op type isn't checked."""

    kind: Annotated[str, fields.OneOf(*EXCEPTIONS)] = Field(
        description="gpu, tpu, dtensor: it needs such a device or mesh. removed: TensorFlow makes no such op "
        "any more. raises: its gradient, or the op, raises by design. nothing: it has no floating output or "
        "input to compare. crash: it ends the process. other: what the reason says.",
        examples=["gpu"],
    )
    reason: fields.Text = Field(
        description="Why, in the words that a reader needs.", examples=["has a kernel for GPUs only"]
    )
    tensorflow: fields.Versions | None = fields.optional(
        "Versions of TensorFlow in which it can't be checked; with any other it counts as missing.", "<2.18"
    )


class ExceptionsFile(fields.Strict):
    """Op types that the specs beside it can't check."""

    model_config = ConfigDict(defer_build=True)

    # Always present, or it is another kind of document; that it may be left out avoids a second fault about a
    # broken one.
    exceptions: (
        Annotated[
            dict[str, ExceptionModel],
            Field(min_length=1),
            fields.expects("a mapping of op types to {kind, reason}"),
        ]
        | None
    ) = fields.optional(
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


def read_exceptions(log: FaultLog, document: Node, places: dict[str, str]) -> list[Excepted]:
    """Read a document with `exceptions`, and add where each op type is excepted; faults are logged."""
    document = _with_kinds(document)
    model, _ = log.validate(ExceptionsFile, document)
    listed = document.get("exceptions")
    if model is None or model.exceptions is None or listed is None:
        return []
    excepted = []
    for op_type, entry in model.exceptions.items():
        node = listed.children[op_type]
        place = f"{log.path}:{node.key_line or node.line}"
        if op_type in places:
            message = f"must be excepted once, but {places[op_type]} does so too. Remove one"
            log.add_key(listed, message, op_type)
            continue
        places[op_type] = place
        excepted.append(Excepted(op_type, entry.kind, entry.reason, place, entry.tensorflow or ""))
    return excepted


def _with_kinds(document: Node) -> Node:
    """Return the document with each `{gpu: why}` as `{kind: gpu, reason: why}`."""
    listed = document.children["exceptions"]
    return document.with_entries({"exceptions": listed.map_children(_with_kind)})


def _with_kind(entry: Node) -> Node:
    kinds = [kind for kind in EXCEPTIONS if kind in entry.children]
    if len(kinds) != 1 or {"kind", "reason"} & set(entry.children):
        return entry
    (kind,) = kinds
    reason = entry.children[kind]
    return entry.without(kind).with_entries({"kind": replace(reason, value=kind), "reason": reason})
