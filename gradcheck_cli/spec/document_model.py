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
    worded,
)
from gradcheck_cli.spec.words import CHECKS, EXCEPTIONS, PAIR_EXPECTATIONS


class OutputModel(Strict):
    """What is known about an output."""

    dtype: DtypeField | None = None
    shape: VaryingShape | None = None


class MismatchModel(Strict):
    """A known mismatch, and its kind."""

    mismatch: MismatchKind


class PairModel(Strict):
    """What to expect of the pairs whose label the key matches."""

    expect: Annotated[
        Annotated[PairExpectation, WORD] | Annotated[MismatchModel, MAPPING],
        by_form(WORD, MAPPING),
    ] = "pass"
    atol: NonNegative | None = None
    rtol: NonNegative | None = None
    reason: Text | None = None


RULE = worded(PAIR_EXPECTATIONS, "expect", alone=True)


class VariableModel(Strict):
    """How far the variables go whose name the key matches."""

    domain: Limits | None = None
    move: Flag = True
    reason: Text | None = None


class ToleranceModel(Strict):
    """Tolerances, as written; without them, scaled defaults."""

    atol: NonNegative | None = None
    rtol: NonNegative | None = None


class PowerModel(Strict):
    """What random probes must be able to see."""

    size: Positive
    miss: Chance


class NondeterminismModel(Strict):
    """How far a repeated gradient may differ from the first."""

    atol: NonNegative


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
    ) = None
    attrs: dict[str, Any] | None = None
    build: dict[str, Any] | None = None
    outputs: Outputs | None = None
    dtypes: VaryingDtypes | None = None
    pairs: dict[str, Annotated[PairModel, RULE]] | None = None
    tolerance: ToleranceModel | None = None
    method: Method = case.Judging.method
    checks: ChecksModel | None = None
    nondeterminism: NondeterminismModel | None = None
    unreached: dict[str, Text] | None = None
    expect: Annotated[
        Annotated[Expectation, WORD] | Annotated[MismatchModel, MAPPING],
        by_form(WORD, MAPPING),
    ] = "pass"
    reason: Text | None = None
    reference: Function | None = None
    reference_forward: Flag = False
    implicit: Flag = False
    freeze: Flag | None = None
    modes: Modes = Field(default=["graph"])
    variables: (
        Annotated[
            Annotated[Flag, WORD] | Annotated[dict[Text, VariableModel], MAPPING],
            by_form(WORD, MAPPING),
        ]
        | None
    ) = None
    covers: OpTypes | None = None
    tensorflow: Versions | None = None
    needs: Texts | None = None
    second_order: Annotated[
        Annotated[Flag, WORD] | Annotated[SecondOrder, LIST],
        by_form(WORD, LIST),
    ] = False
    device: Device | None = None
    samples: Count = case.Judging.samples
    seed: Seed = case.Case.seed
    power: PowerModel | None = None
    timeout: Positive | None = None
    tags: Texts = Field(default=[])
    description: Text | None = None


class CaseModel(CaseKeys):
    """A case with its name."""

    name: OpName


Cases = Annotated[
    Annotated[list[CaseModel], LIST] | Annotated[dict[str, CaseKeys | None], MAPPING],
    by_form(LIST, MAPPING),
    # `load` reads each case alone, over its op.
    BeforeValidator(lambda cases: [] if isinstance(cases, dict | list) else cases),
]


class Defaults(CaseKeys):
    """Keys merged under each op of the file."""

    op: OpName | None = None
    module: ModuleName | None = None
    forward: Function | None = None
    op_type: OpType | None = None
    gradient: Function | None = None
    binding: Binding | None = None
    cases: Cases | None = None
    cases_from: Texts | None = None
    case_sets: dict[Label, Cases] | None = None


class OpModel(Defaults):
    """One op."""


class OpsFile(Strict):
    """Several ops in one document; built only for the JSON Schema, as `load` reads the ops one by one."""

    model_config = ConfigDict(defer_build=True)

    ops: Annotated[list[OpModel], Field(min_length=1), expects("a list of ops")]
    defaults: Defaults | None = None


class ExceptionModel(Strict):
    """Why an op type isn't checked."""

    kind: Annotated[str, OneOf(*EXCEPTIONS)]
    reason: Text
    tensorflow: Versions | None = None


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
    ) = None


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
