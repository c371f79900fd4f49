"""The spec format as pydantic models: which keys there are, and the type of each value by itself.

Rules that involve two keys (a generator and a dtype, a binding and its functions) are applied after merging,
in `inputs` and `read_arguments`. Users never see an error in pydantic's words: `expects` attaches
gradcheck's, and `faults` puts them together.

Documents with `exceptions` say what specs can't check, each by name and with its reason. They lie among the
specs and are read with them. An entry is an op type or, for `run --cov`, a function that carries a gradient,
or a module.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag

from gradcheck_cli.spec import case, input_model
from gradcheck_cli.spec import leaf_types as leaf
from gradcheck_cli.spec.words import CHECKS, EXCEPTIONS

if TYPE_CHECKING:
    from gradcheck_cli.spec.faults import FaultLog
    from gradcheck_cli.spec.yaml_tree import Node


class OutputModel(input_model.Strict):
    """What is known about an output."""

    dtype: leaf.DtypeField | None = input_model.optional("TensorFlow dtype of the output.", "float32")
    shape: leaf.VaryingShape | None = input_model.optional(
        "Dimensions; null where one is unknown.", [4, None]
    )


class MismatchModel(input_model.Strict):
    """A known mismatch, and its kind."""

    mismatch: leaf.MismatchKind = Field(
        description="value: another number than the derivative. none: None where the derivative isn't zero. "
        "nonfinite: NaN or infinity where the derivative is finite. form: another shape or dtype than the "
        "input's. raises: an exception.",
        examples=["none"],
    )


class PairModel(input_model.Strict):
    """What to expect of the pairs whose label the key matches."""

    expect: Annotated[
        Annotated[leaf.PairExpectation, Tag(input_model.WORD)]
        | Annotated[MismatchModel, Tag(input_model.MAPPING)],
        Discriminator(input_model.word_or_mapping),
    ] = Field(
        default="pass",
        description="Expected outcome of each pair that the key matches; strict, and so is the kind of a "
        "mismatch where one is given. Without it, what the op or case expects.",
        examples=["zero", {"mismatch": "none"}],
    )
    atol: leaf.NonNegative | None = input_model.optional("Absolute tolerance, as written.", 1e-6)
    rtol: leaf.NonNegative | None = input_model.optional("Relative tolerance, as written.", 1e-4)
    reason: leaf.Text | None = input_model.optional("Why; shown in the report.", "the cut is meant")


class ToleranceModel(input_model.Strict):
    """Tolerances, as written; without them, scaled defaults."""

    atol: leaf.NonNegative | None = input_model.optional("Absolute tolerance.", 1e-6)
    rtol: leaf.NonNegative | None = input_model.optional("Relative tolerance.", 1e-4)


class PowerModel(input_model.Strict):
    """What random probes must be able to see."""

    size: leaf.Positive = Field(description="Relative size of an error in one element.", examples=[0.01])
    miss: leaf.Chance = Field(description="Probability with which it may be missed.", examples=[0.1])


class NondeterminismModel(input_model.Strict):
    """How far a repeated gradient may differ from the first."""

    atol: leaf.NonNegative = Field(description="Absolute difference allowed.", examples=[1e-6])


if TYPE_CHECKING:

    class ChecksModel(input_model.Strict):
        """A switch for each of `words.CHECKS`."""

else:
    ChecksModel = input_model.make_model(
        "ChecksModel",
        "Structural checks, each on unless it is set to false.",
        {name: (leaf.Flag, Field(default=True, description=check.about)) for name, check in CHECKS.items()},
    )


Outputs = Annotated[
    Annotated[
        Annotated[list[leaf.Label], Field(min_length=1), leaf.expects("a list of names")],
        Tag(input_model.LIST),
    ]
    | Annotated[
        Annotated[
            dict[
                leaf.Label,
                Annotated[
                    Annotated[OutputModel, Tag(input_model.MAPPING)]
                    | Annotated[None, Tag(input_model.NOTHING)],
                    Discriminator(input_model.form_of),
                ],
            ],
            Field(min_length=1),
            leaf.expects("a list of names, or a mapping of names to {dtype, shape}"),
        ],
        Tag(input_model.MAPPING),
    ],
    Discriminator(input_model.form_of),
]


class CaseKeys(input_model.Strict):
    """The keys that an op and each of its cases may hold."""

    inputs: (
        Annotated[
            dict[leaf.Label, input_model.Tensors],
            Field(min_length=1),
            leaf.expects("a mapping of names to inputs"),
        ]
        | None
    ) = input_model.optional(
        "Inputs by name, in forward's positional order (for an op type: by argument name). "
        "A list is a list argument; `dict`, `tuple` and `object` make other structures. Arguments that "
        "forward takes only by keyword are passed by name.",
        {"x": {"shape": [3, 2]}},
    )
    attrs: dict[str, Any] | None = input_model.optional(
        "Keyword arguments of forward, or attributes of the op type; never differentiated.",
        {"transpose_a": True},
    )
    build: dict[str, Any] | None = input_model.optional(
        "Makes forward a factory: it is called with these arguments and returns the function to check.",
        {"delta": 1.0},
    )
    outputs: Outputs | None = input_model.optional(
        "Names of the outputs in order, or a mapping of names to dtype and shape.",
        ["y"],
        {"y": {"dtype": "float32", "shape": [4]}},
    )
    dtypes: leaf.VaryingDtypes | None = input_model.optional(
        "Runs the case once per dtype, for each input that names none. `floating` stands for the four real "
        "dtypes, `complex` for the two complex ones.",
        ["float32", "float64"],
        ["floating", "complex128"],
    )
    pairs: dict[str, PairModel] | None = input_model.optional(
        "Expectations by pair label dOUT/dIN, with * and ? as wildcards; "
        "of several that match, the last one written wins. `{zero: why}` is an expectation with its reason, "
        "`{mismatch: value, reason: why}` one with its kind.",
        {"dy/dx": {"expect": "disconnected"}},
    )
    tolerance: ToleranceModel | None = input_model.optional(
        "Tolerances that replace the scaled defaults.", {"rtol": 1e-4}
    )
    method: leaf.Method = Field(
        default="auto",
        description="How a pair is judged. auto: central differences, with a ladder of steps where in doubt, "
        "and random probes where a Jacobian has more than half a million elements, structural zeros aside. "
        "full: every element, whatever the size. probe: random probes above 4,096 elements. central, ladder: "
        "only this way of differencing. complex_step: for an analytic forward.",
    )
    checks: ChecksModel | None = input_model.optional("Structural checks to turn off.", {"linearity": False})
    nondeterminism: NondeterminismModel | None = input_model.optional(
        "For a gradient whose sums have no fixed order: how far it may differ when it is repeated.",
        {"atol": 1e-6},
    )
    unreached: dict[str, leaf.Text] | None = input_model.optional(
        "Sides of branches that the inputs can't take, as the report names them, with * and ? as wildcards; "
        "each with the reason. They don't count as never seen.",
        {"x > 3.5 true": "x is a probability"},
    )
    expect: Annotated[
        Annotated[leaf.Expectation, Tag(input_model.WORD)]
        | Annotated[MismatchModel, Tag(input_model.MAPPING)],
        Discriminator(input_model.word_or_mapping),
    ] = Field(
        default="pass",
        description="mismatch: every pair is known to be wrong, unless `pairs` says otherwise; "
        "strict, and so is the kind if it is given.",
        examples=["mismatch", {"mismatch": "none"}],
    )
    reason: leaf.Text | None = input_model.optional(
        "Why a mismatch is expected; shown in the report.", "returns the derivative of (c + k) * d"
    )
    reference: leaf.Module | None = input_model.optional(
        "Function whose derivative a surrogate gradient is meant to be.", "surrogates:sigmoid"
    )
    reference_forward: leaf.Flag = Field(
        default=False, description="The forward must also equal the reference."
    )
    implicit: leaf.Flag = Field(
        default=False,
        description="The forward draws a sample, and `reference` makes its distribution from the inputs: an "
        "object with `cdf` and `prob`. The truth is the implicit reparameterisation, -(dF/dp) / f.",
    )
    freeze: leaf.Flag | None = input_model.optional(
        "Whether a stop_gradient on backpropagation's path keeps its value while the inputs move. true: yes, "
        "it is meant; false: never; unset: a pair is inconclusive if that changes its derivative. "
        "Random draws are always held.",
        input_model.ON,
    )
    modes: leaf.Modes = Field(
        default=["graph"],
        description="How TensorFlow runs the op: traced (graph), traced with unknown dimensions (dynamic), "
        "called under a GradientTape (eager), compiled for the CPU (xla). Each is checked, and their "
        "gradients are compared.",
        examples=[["graph", "eager"]],
    )
    variables: leaf.Flag | None = input_model.optional(
        "true makes every trainable variable that the forward uses an input of its own, by its name; false "
        "makes none. Default: those of a Keras layer or model, and those that a custom gradient has "
        "gradients for.",
        input_model.ON,
    )
    covers: leaf.OpTypes | None = input_model.optional(
        "Op types whose own registered gradient function must be seen to run anywhere in the case's backward "
        "pass; otherwise the case is an error. An op_type without forward and gradient covers itself.",
        ["StatelessIf", "MatMul"],
    )
    tensorflow: leaf.Versions | None = input_model.optional(
        "Versions of TensorFlow that the case is for; with any other version it is skipped.", ">=2.18"
    )
    needs: leaf.Texts | None = input_model.optional(
        "Modules that the case needs; if one isn't installed, it is skipped.", ["tensorflow_probability"]
    )
    second_order: Annotated[
        Annotated[leaf.Flag, Tag(input_model.WORD)] | Annotated[leaf.SecondOrder, Tag(input_model.LIST)],
        Discriminator(input_model.word_or_list),
    ] = Field(
        default=False,
        description="Also checks the gradient's own gradient: pairs d2OUT/dIN.dIN, and d2OUT/dIN.du for the "
        "upstream u. A list of dtypes or modes does so only in these of the case; rules for such pairs are "
        "ignored in the others.",
        examples=[input_model.ON, ["float64", "complex128"], ["graph"]],
    )
    device: leaf.Device | None = input_model.optional(
        "Where to run; skipped if there is no such device.", "GPU:0"
    )
    samples: leaf.Count = Field(
        default=2,
        description="Points at which drawn values are checked. By default up to 4 if an input of at most 8 "
        "elements is drawn from that few booleans, integers or choices, so that each is used in turn.",
    )
    seed: leaf.Seed = Field(default=0, description="Seed of the drawn values.")
    budget: leaf.Positive | None = input_model.optional(
        "Seconds of processor time in which `method: auto` judges a case, apart from the necessary minimum; "
        "what is unseen after that is inconclusive. Default: 10.",
        30,
    )
    power: PowerModel | None = input_model.optional(
        "What random probes must detect. Default: an error of 0.01 in one element, missed with a probability "
        "of at most 0.1.",
        {"size": 0.1, "miss": 0.2},
    )
    timeout: leaf.Positive | None = input_model.optional(
        "Seconds after which a case is stopped, if cases run in separate processes.", 120
    )
    tags: leaf.Texts = Field(default=[], description="Labels for selection.", examples=[["slow"]])
    description: leaf.Text | None = input_model.optional("What the op is.", "Two chained sparse convolutions")


class CaseModel(CaseKeys):
    """A further case, merged over the spec's own keys."""

    name: leaf.OpName = Field(description="Name of the case, unique within the op.", examples=["square"])


class Defaults(CaseKeys):
    """Keys merged under each op of the file."""

    op: leaf.OpName | None = input_model.optional(
        "Name of the op; unique. In it, `{op_type}` stands for the op type, or for the first that the op "
        "covers. Default: the op type, or the file's stem.",
        "huber",
        "tf_{op_type}",
    )
    module: leaf.ModuleName | None = input_model.optional(
        "Module of the functions that are written without one, such as `forward: .huber`.", "package.module"
    )
    forward: leaf.Module | None = input_model.optional("The function under test.", "package.module:function")
    op_type: leaf.OpType | None = input_model.optional(
        "TensorFlow's name of a kernel, instead of forward. A list makes an op of each, with the same keys.",
        "MatMul",
        ["Sin", "Cos"],
    )
    gradient: leaf.Module | None = input_model.optional(
        "Gradient function (op, *upstream); {numpy: module:function} takes (*upstream, *inputs).",
        "gradients:square_grad",
        {"numpy": "gradients:square_grad"},
    )
    binding: leaf.Binding | None = input_model.optional("How the gradient is attached.", "py_func")
    cases: list[CaseModel] | None = input_model.optional(
        "Further cases, each merged over the spec's own keys. A list replaces the cases of the defaults; a "
        "mapping of names to cases extends them, and null removes one.",
        [{"name": "square", "inputs": {"a": {"shape": [4, 4]}}}],
        {"square": {"inputs": {"a": [4, 4]}}},
    )
    cases_from: leaf.Texts | None = input_model.optional(
        "Sets of cases, from `case_sets`, that come first.", ["unary"]
    )
    case_sets: dict[leaf.Label, list[CaseModel]] | None = input_model.optional(
        "Sets of cases by name, which the ops take by `cases_from`; written like `cases`. In defaults.",
        {"unary": {"empty": {"inputs": {"x": [0]}}}},
    )


class OpModel(Defaults):
    """One op."""


class OpsFile(input_model.Strict):
    """Several ops in one document; built only for the JSON Schema, as `load` reads the ops one by one."""

    model_config = ConfigDict(defer_build=True)

    ops: Annotated[list[OpModel], Field(min_length=1), leaf.expects("a list of ops")] = Field(
        description="The ops, each as in a separate document.",
        examples=[[{"op": "square", "forward": "tensorflow:square", "inputs": {"x": {"shape": [3]}}}]],
    )
    defaults: Defaults | None = input_model.optional(
        "Merged under each op.", {"dtypes": ["float32", "float64"]}
    )


class ExceptionModel(input_model.Strict):
    """Why an op type isn't checked."""

    kind: Annotated[str, leaf.OneOf(*EXCEPTIONS)] = Field(
        description="gpu, tpu, dtensor: it needs such a device or mesh. removed: TensorFlow makes no such op "
        "any more. raises: its gradient, or the op, raises by design. nothing: it has no floating output or "
        "input to compare. crash: it ends the process. other: what the reason says.",
        examples=["gpu"],
    )
    reason: leaf.Text = Field(
        description="Why, in the words that a reader needs.", examples=["has a kernel for GPUs only"]
    )
    tensorflow: leaf.Versions | None = input_model.optional(
        "Versions of TensorFlow in which it can't be checked; with any other it counts as missing.", "<2.18"
    )


class ExceptionsFile(input_model.Strict):
    """Op types that the specs beside it can't check."""

    model_config = ConfigDict(defer_build=True)

    # Always present, or it is another kind of document; that it may be left out avoids a second fault about a
    # broken one.
    exceptions: (
        Annotated[
            dict[str, ExceptionModel],
            Field(min_length=1),
            leaf.expects("a mapping of op types to {kind, reason}"),
        ]
        | None
    ) = input_model.optional(
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
