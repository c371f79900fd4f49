"""One input as a pydantic model, and the parts that every model of the format uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Tag,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
    field_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from gradcheck_cli.spec.case import is_specifier
from gradcheck_cli.spec.words import (
    BINDINGS,
    DTYPE_KINDS,
    DTYPES,
    EXPECTATIONS,
    GENERATORS,
    METHODS,
    MISMATCHES,
    MODES,
    PAIR_EXPECTATIONS,
    TWO_NUMBERS,
    VARYING_DTYPES,
)

MAX_RANK = 32  # numpy 1.26's limit
MAX_LENGTH = 2**31  # of a row: beyond this, hardly one array fits into memory
EXPECTED = "expected"  # the error type that `expects` raises, and `faults` renders


def expects(
    phrase: str,
    *,
    choices: tuple[str, ...] = (),
    remedy: str | Callable[[object], str] = "",
    is_whole: bool = False,
) -> WrapValidator:
    """Give a type gradcheck's own words: "must be {phrase}, but got ...".

    Args:
        remedy: what to do, or what says so of a value.
        is_whole: whether these are the words for its parts, too.

    Returns:
        A validator that turns any error about the value itself into one error with these words. Errors about
        parts of a list or mapping keep their own words.
    """

    def check(value: object, handler: Callable[[object], object]) -> object:
        try:
            return handler(value)
        except ValidationError as error:
            are_parts = isinstance(value, (list, dict)) and all(fault["loc"] for fault in error.errors())
            if are_parts and not is_whole:
                raise
            what_to_do = remedy if isinstance(remedy, str) else remedy(value)
            words = {"phrase": phrase, "choices": choices, "remedy": what_to_do}
            raise PydanticCustomError(EXPECTED, "{phrase}", words) from None

    return WrapValidator(check)


def allows(phrase: str, allowed: Callable[[object], bool], *, remedy: str = "") -> BeforeValidator:
    """Give words to a type that one function checks as a whole, if its parts need no words of their own."""

    def check(value: object) -> object:
        if not allowed(value):
            words = {"phrase": phrase, "choices": (), "remedy": remedy}
            raise PydanticCustomError(EXPECTED, "{phrase}", words)
        return value

    return BeforeValidator(check)


class Short:
    """Allows a short form beside the long one: a function that writes it out, and its JSON Schema."""

    def __init__(
        self, expand: Callable[[Any], Any], describe: Callable[[Callable[[], dict[str, Any]]], list[Any]]
    ) -> None:
        """Take what writes the short form out; and the schemas of short forms, from that of the long one."""
        self.expand = expand
        self._describe = describe

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the long form, before which the short one is written out."""
        return core_schema.no_info_before_validator_function(self.expand, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON Schema of both forms."""
        long = handler(schema)
        return {"anyOf": [long, *self._describe(lambda: handler.resolve_ref_schema(long))]}


def _pair(key: str) -> Short:
    """Allow a list of two numbers in the place of a mapping."""

    def expand(value: Any) -> Any:  # noqa: ANN401 (what is written)
        is_short = isinstance(value, list) and len(value) == len(TWO_NUMBERS[key])
        return dict(zip(TWO_NUMBERS[key], value, strict=True)) if is_short else value

    short = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    return Short(expand, lambda _: [short])


def worded(words: tuple[str, ...], key: str, *, alone: bool = False) -> Short:
    """Allow `{word: why}` for `{key: word, reason: why}`; the detail of a mismatch is its kind.

    Args:
        alone: whether the word may also stand without a mapping.
    """

    def expand(entry: Any) -> Any:  # noqa: ANN401 (what is written)
        if alone and isinstance(entry, str):
            return {key: entry}
        named = [word for word in words if isinstance(entry, dict) and word in entry]
        if len(named) != 1 or key in entry:
            return entry
        (word,) = named
        rest = {other: value for other, value in entry.items() if other != word}
        if word == "mismatch":
            return {**rest, key: {word: entry[word]}}
        return entry if "reason" in entry else {**rest, key: word, "reason": entry[word]}

    def describe(long: Callable[[], dict[str, Any]]) -> list[Any]:
        keys = {other: part for other, part in long()["properties"].items() if other != key}
        reason = keys.pop("reason")
        short: list[Any] = [{"enum": list(words)}] if alone else []
        for word in words:
            kind = {word: {"enum": list(MISMATCHES), "description": "Its kind."}, "reason": reason}
            properties = (kind if word == "mismatch" else {word: reason}) | keys
            rest = {"required": [word], "additionalProperties": False}
            short.append({"type": "object", "properties": properties, **rest})
        return short

    return Short(expand, describe)


# One word in the place of a list of words.
_OR_WORD = Short(lambda value: [value] if isinstance(value, str) else value, lambda long: [long()["items"]])


class OneOf:
    """Makes a text field a choice between words."""

    def __init__(self, *words: str, phrase: str = "") -> None:
        """Take the words, such as the keys of a table in `words`; a fault lists them, or says `phrase`."""
        self._words = words
        self._phrase = phrase or f"one of {', '.join(words)}"

    def __get_pydantic_core_schema__(self, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the choice, in pydantic's protocol."""
        return handler.generate_schema(
            Annotated[Literal[self._words], expects(self._phrase, choices=self._words)]
        )


def is_scalar(value: object) -> bool:
    """Whether a value is a number, text or a truth value."""
    return isinstance(value, (int, float, str))


def _is_value(value: object) -> bool:
    return all(map(_is_value, value)) if isinstance(value, list) else is_scalar(value)


def is_shape(value: object) -> bool:
    """Whether a value is a list of whole numbers: as an input, a tensor of that shape."""
    return isinstance(value, list) and all(type(size) is int for size in value)


OP_NAME = re.compile(r"[^\s,]+")
_NAMES = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
FUNCTION = "module:attribute, or {numpy: module:function}"
# A label such as dy/dx must be unambiguous: no slash, bracket, wildcard or space in a name.
_LABEL_PATTERN = r"^[^\s/\[\]*?,:]+$"

_TEXT = {"type": "string", "minLength": 1}
Text = Annotated[str, Field(min_length=1), expects("text", remedy="Put numbers and the like in quotes")]
Texts = Annotated[list[Text], expects("a list of texts"), _OR_WORD]
OpType = Annotated[Text, WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}]})]
OpTypes = Annotated[
    list[Text], Field(min_length=1), expects("a list of op types, such as [MatMul]"), _OR_WORD
]
Versions = Annotated[
    str,
    allows("versions of TensorFlow from 2.16 on, such as '>=2.18' or '>=2.16, <2.20'", is_specifier),
    WithJsonSchema({"type": "string"}),
]
Label = Annotated[
    str,
    Field(pattern=_LABEL_PATTERN),
    expects("a name without spaces, slashes, brackets, *, ?, comma or colon"),
]
OpName = Annotated[
    str,
    Field(pattern=r"^[^\s,]+$"),
    expects("a name without spaces or commas", remedy="Quote it if it is a number"),
]
Flag = Annotated[bool, expects("true or false")]
Real = Annotated[float, Field(allow_inf_nan=False), expects("a finite number")]
Reals = Annotated[list[Real], Field(min_length=1), expects("a list of numbers, such as [0]")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), expects("a finite number above 0")]
Chance = Annotated[float, Field(gt=0, lt=1), expects("a number above 0 and below 1")]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), expects("a finite number of 0 or more")]
# numpy draws integers of at most 64 bits; `high` is excluded, so it may be one larger.
Integer = Annotated[int, Field(ge=-(2**63), le=2**64), expects("an integer between -2**63 and 2**64")]
Count = Annotated[int, Field(ge=1, le=10_000), expects("an integer from 1 to 10000")]
Seed = Annotated[int, Field(ge=0, lt=2**63), expects("an integer from 0 to 2**63 - 1")]
Dimension = Annotated[int, Field(ge=0), expects("an integer of 0 or more")]
Shape = Annotated[
    list[Dimension],
    Field(max_length=MAX_RANK),
    expects(f"a list of at most {MAX_RANK} integers, such as [3, 2] ([] for a scalar)"),
]
VaryingShape = Annotated[
    list[Annotated[int | None, Field(ge=0), expects("an integer of 0 or more, or null")]],
    Field(max_length=MAX_RANK),
    expects(f"a list of at most {MAX_RANK} integers or nulls"),
]
Places = Annotated[
    list[
        Annotated[list[Dimension], Field(max_length=MAX_RANK), expects("a list of integers, one a dimension")]
    ],
    expects("a list of places, such as [[0, 1], [2, 0]]"),
]
NonZeros = Annotated[int, Field(ge=0), expects("an integer of 0 or more")]


RowLengths = Annotated[
    list[list[Annotated[int, Field(ge=0, le=MAX_LENGTH)]]],
    Field(min_length=1),
    Short(lambda value: [value] if value and is_shape(value) else value, lambda long: [long()["items"]]),
    expects("a list of row lengths, such as [2, 0, 3], or a list of such lists", is_whole=True),
]
DtypeField = Annotated[str, OneOf(*DTYPES, phrase="a TensorFlow dtype")]
VaryingDtypes = Annotated[
    list[Annotated[str, OneOf(*VARYING_DTYPES, *DTYPE_KINDS, phrase="a float or complex dtype")]],
    Field(min_length=1),
    expects("a list of dtypes, such as [float32, float64]"),
    _OR_WORD,
]
Expectation = Annotated[str, OneOf(*EXPECTATIONS)]
PairExpectation = Annotated[str, OneOf(*PAIR_EXPECTATIONS)]
MismatchKind = Annotated[str, OneOf(*MISMATCHES)]
Binding = Annotated[str, OneOf(*BINDINGS)]
Method = Annotated[str, OneOf(*METHODS)]
SecondOrder = Annotated[
    list[Annotated[str, OneOf(*VARYING_DTYPES, *MODES, phrase="a float or complex dtype, or a mode")]],
    Field(min_length=1),
    expects("true, false, or a list of dtypes or modes, such as [float64] or [graph]"),
]
Modes = Annotated[
    list[Annotated[str, OneOf(*MODES)]],
    Field(min_length=1),
    expects("a list of modes, such as [graph, eager]"),
    _OR_WORD,
]
DEVICE = re.compile(r"(CPU|GPU|TPU):\d+")
Device = Annotated[
    str, Field(pattern=rf"^{DEVICE.pattern}$"), expects("a device with its number, such as GPU:0 or CPU:0")
]
Side = Annotated[str, OneOf("lower", "upper")]


def _require_true(value: bool) -> bool:  # noqa: FBT001 (pydantic calls it)
    if not value:
        raise ValueError
    return value


# Not Literal[True], which takes 1, too.
_True = Annotated[bool, AfterValidator(_require_true), WithJsonSchema({"const": True})]
Yes = Annotated[_True, expects("true", remedy="Leave the key out for anything else")]
Probability = Annotated[
    _True | Annotated[float, Field(ge=0, le=1)],
    expects("true, or a probability from 0 to 1", is_whole=True),
]
Value = Annotated[
    object,
    allows("a number, text, truth value, or nested lists of them", _is_value),
    WithJsonSchema({"type": ["number", "string", "boolean", "array"]}),
]
Scalars = Annotated[
    list[Annotated[bool | int | float | str, expects("a number, text or truth value", is_whole=True)]],
    Field(min_length=1),
    expects("a list of values to choose from"),
]
FileName = Annotated[
    str,
    Field(pattern=r"^.+(\.npy|\.npz:.+)$"),
    expects("data.npz:KEY or data.npy", remedy="Save arrays with numpy.save or numpy.savez"),
]
ClassName = Annotated[str, Field(pattern=f"^{_NAMES}:{_NAMES}$"), expects("module:Class")]
ModuleName = Annotated[str, Field(pattern=f"^{_NAMES}$"), expects("the name of a module")]
_FUNCTION_PATTERN = rf"^({_NAMES}:|\.){_NAMES}$"  # .function: of the op's `module`


def _refuse_file(function: str) -> str:
    if ".py:" in function:
        raise ValueError
    return function


_Function = Annotated[str, Field(pattern=_FUNCTION_PATTERN), AfterValidator(_refuse_file)]


def _suggest_function(value: object) -> str:
    """Say how a file's function, or a name with dots alone, is written."""
    path, colon, name = str(value).replace("::", ":").partition(":")
    module = path.removeprefix("./").removesuffix(".py").replace("/", ".")
    if not colon:
        module, _, name = module.rpartition(".")
    function = re.sub(r"^tf\b", "tensorflow", f"{module}:{name}")
    return f"Did you mean '{function}'?" if re.match(_FUNCTION_PATTERN, function) else ""


# Tags of unions; brackets distinguish them from any key, since pydantic mixes them into the place of an
# error.
MAPPING, LIST, WORD = map(Tag, ("<mapping>", "<list>", "<word>"))
_TAGS: dict[type, Tag] = {dict: MAPPING, list: LIST}

_NAMED = expects("a mapping of names to inputs")
_LISTED = expects("a list of one or more inputs")
_NO_LIST = allows(
    "a mapping",
    lambda value: not isinstance(value, list),
    remedy="Write a list within a list as {list: [...]}",
)


class Strict(BaseModel):
    """A mapping that allows the keys named here and no others, and converts nothing but int to float."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _reject_null(cls, value: object) -> object:
        # An empty value would silently mean the default; more likely, something was forgotten.
        if value is None:
            raise PydanticCustomError("empty", "empty")
        return value


class NumpyFunction(Strict):
    """A function of NumPy arrays."""

    numpy: _Function


Function = Annotated[_Function | NumpyFunction, expects(FUNCTION, remedy=_suggest_function, is_whole=True)]


class Domain(Strict):
    """Bounds that neither a drawn value nor a perturbation leaves."""

    low: Real | None = None
    high: Real | None = None


DOMAIN = _pair("domain")
Limits = Annotated[Domain, DOMAIN]


class Sparse(Strict):
    """Where the nonzeros of a SparseTensor are; its values are what is differentiated."""

    indices: Places | None = None
    nnz: NonZeros | None = None


class Ragged(Strict):
    """How a RaggedTensor's values are divided into rows. Its flat values are what is differentiated."""

    row_lengths: RowLengths
    inner_shape: Shape = []


class Uniform(Strict):
    """Uniform between `low` and `high`."""

    low: Real
    high: Real


class Normal(Strict):
    """Normal distribution."""

    mean: Real = 0.0
    stddev: Positive = 1.0


class Integers(Strict):
    """Whole numbers from `low` up to, but not including, `high`."""

    low: Integer
    high: Integer


class InputModel(Strict):
    """One tensor that goes into the op (dtype, shape, where its values come from), or a structure of them."""

    shape: Shape | None = None
    dtype: DtypeField | None = None
    # The keys of `words.GENERATORS`.
    value: Value | None = None
    file: FileName | None = None
    uniform: Annotated[Uniform, _pair("uniform")] | None = None
    normal: Annotated[Normal, _pair("normal")] | None = None
    integers: Annotated[Integers, _pair("integers")] | None = None
    choice: Scalars | None = None
    bool: Probability | None = None
    one_hot: Yes | None = None
    spd: Yes | None = None
    triangular: Side | None = None
    probabilities: Yes | None = None
    generator: Label | None = None
    away_from: Reals | None = None
    min_gap: Positive | None = None
    symmetric: Flag = False
    domain: Limits | None = None
    scale: Positive | None = None
    differentiate: Flag = True
    move: Flag = True
    reason: Text | None = None
    sparse: Sparse | None = None
    ragged: Ragged | None = None
    dict_: Annotated[dict[Label, Tensors], Field(min_length=1), _NAMED] | None = Field(
        default=None, alias="dict"
    )
    tuple_: Annotated[list[Tensors], Field(min_length=1), _LISTED] | None = Field(default=None, alias="tuple")
    list_: Annotated[list[Tensors], Field(min_length=1), _LISTED] | None = Field(default=None, alias="list")
    object_: ClassName | None = Field(default=None, alias="object")
    fields: Annotated[dict[Label, Tensors], Field(min_length=1), _NAMED] | None = None

    @property
    def sources(self) -> dict[str, Any]:
        """The values of generators' keys, by key; a sound input has at most one."""
        return {kind: getattr(self, kind) for kind in GENERATORS if kind in self.model_fields_set}

    @property
    def structure(self) -> str:
        """The key that makes this a structure of inputs: dict, tuple, list or object; empty for a tensor."""
        if self.object_ is not None or self.fields is not None:
            return "object"
        return next((key for key in ("dict", "tuple", "list") if getattr(self, f"{key}_") is not None), "")


def by_form(*tags: Tag) -> Discriminator:
    """Return what chooses the member of a union by the form of a value; the first for any other form."""
    return Discriminator(lambda value: _form_of(value, tags))


def _form_of(value: object, tags: tuple[Tag, ...]) -> str:
    tag = _TAGS.get(type(value), WORD)
    return (tag if tag in tags else tags[0]).tag


SHAPE = Short(
    lambda value: {"shape": value} if is_shape(value) else value,
    lambda _: [{"type": "array", "items": {"type": "integer", "minimum": 0}}],
)
Tensors = (
    Annotated[
        Annotated[Annotated[InputModel, SHAPE], MAPPING]
        | Annotated[
            Annotated[list[Annotated[InputModel, _NO_LIST, SHAPE]], Field(min_length=1), _LISTED], LIST
        ],
        Discriminator(lambda value: _form_of({} if is_shape(value) else value, (MAPPING, LIST))),
    ]
    | None
)
InputModel.model_rebuild()
