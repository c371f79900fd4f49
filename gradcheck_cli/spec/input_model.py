"""One input as a pydantic model, and the parts that every model of the format uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, create_model, field_validator
from pydantic_core import PydanticCustomError

from gradcheck_cli.spec import leaf_types as leaf
from gradcheck_cli.spec.words import GENERATORS, Generator

# Tags of unions; brackets distinguish them from any key, since pydantic mixes them into the place of an
# error.
MAPPING, LIST, NOTHING, WORD = "<mapping>", "<list>", "<nothing>", "<word>"

_NAMED = leaf.expects("a mapping of names to inputs")
_LISTED = leaf.expects("a list of one or more inputs")
_NO_LIST = leaf.allows(
    "a mapping",
    lambda value: not isinstance(value, list),
    remedy="Write a list within a list as {list: [...]}",
)
# A switch's one value, for the examples of keys that are switched on.
ON: Final = True


def optional(text: str, *examples: object, alias: str | None = None) -> Any:  # noqa: ANN401 (pydantic's own type)
    """Return a field that may be left out, with its line of documentation for the JSON Schema."""
    return Field(default=None, description=text, examples=list(examples) or None, alias=alias)


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


def make_model(name: str, about: str, keys: dict[str, Any], *, base: type[Strict] = Strict) -> Any:  # noqa: ANN401 (a model)
    """Return a model with the keys of a table, each with its type and field."""
    model = create_model(name, __base__=base, **keys)
    model.__doc__ = about
    return model


class Domain(Strict):
    """Bounds that neither a drawn value nor a perturbation leaves."""

    low: leaf.Real | None = optional("Lower bound.", 0)
    high: leaf.Real | None = optional("Upper bound.", 1)


class Sparse(Strict):
    """Where the nonzeros of a SparseTensor are; its values are what is differentiated."""

    indices: leaf.Places | None = optional("The place of each nonzero.", [[0, 1], [2, 0]])
    nnz: leaf.NonZeros | None = optional("Number of nonzeros, at places that are drawn.", 5)


class Ragged(Strict):
    """How a RaggedTensor's values are divided into rows. Its flat values are what is differentiated."""

    row_lengths: leaf.RowLengths = Field(
        description="Length of each row; or a list of such lists, the outermost dimension first.",
        examples=[[2, 0, 3], [[2, 1], [1, 3, 2]]],
    )
    inner_shape: leaf.Shape = Field(
        default=[], description="Dimensions of each value, where it is no scalar.", examples=[[4]]
    )


class _Tensor(Strict):
    shape: leaf.Shape | None = optional("Dimensions; may be left out with `value` or `file`.", [3, 2])
    dtype: leaf.DtypeField | None = optional("TensorFlow dtype; default float64.", "float32")


# The types of generators and their numbers, by the words of `words.GENERATORS`.
_TAKES: dict[str, Any] = {
    "value": leaf.Value,
    "file": leaf.FileName,
    "choices": leaf.Scalars,
    "probability": leaf.Probability,
    "side": leaf.Side,
    "name": leaf.Label,
    "switch": leaf.Yes,
}
_NUMBERS: dict[str, Any] = {
    "real": leaf.Real,
    "integer": leaf.Integer,
    "positive": leaf.Positive,
}


def _attribute(kind: str) -> str:
    """Return the name of a generator's field, which can't be `bool`."""
    return f"{kind}_" if kind == "bool" else kind


def _field_of(kind: str, generator: Generator) -> tuple[Any, Any]:
    """Return the type of a generator's key, and its documentation."""
    value_type = _model_of(kind, generator) if generator.numbers else _TAKES[generator.takes]
    alias = kind if _attribute(kind) != kind else None
    return value_type | None, optional(generator.about, *generator.examples, alias=alias)


def _model_of(kind: str, generator: Generator) -> Any:  # noqa: ANN401 (a model)
    """Return the model for a mapping of numbers."""
    numbers: dict[str, Any] = {}
    for key, number in generator.numbers.items():
        named = {"examples": [number.example]} if number.default is None else {"default": number.default}
        numbers[key] = (_NUMBERS[number.kind], Field(description=number.about, **named))
    return make_model(kind.title(), generator.about_numbers, numbers)


if TYPE_CHECKING:
    _Sources = _Tensor
else:
    _Sources = make_model(
        "_Sources",
        "",
        {_attribute(kind): _field_of(kind, generator) for kind, generator in GENERATORS.items()},
        base=_Tensor,
    )


class InputModel(_Sources):
    """One tensor that goes into the op (dtype, shape, where its values come from), or a structure of them."""

    away_from: leaf.Reals | None = optional(
        "Points, such as kinks, that drawn values keep 0.1 standard deviations away from.", [0]
    )
    min_gap: leaf.Positive | None = optional("Least distance between any two drawn elements: no ties.", 0.01)
    symmetric: leaf.Yes | None = optional(
        "A symmetric (Hermitian) matrix that stays so: elements move in pairs, symmetric parts are compared. "
        "For what reads one triangle, such as a Cholesky factor.",
        ON,
    )
    domain: Domain | None = optional("Bounds for all values and perturbations.", {"low": 0})
    scale: leaf.Positive | None = optional(
        "Typical magnitude, for the step; default from the values.", 1.0e-3
    )
    differentiate: leaf.Flag = Field(default=True, description="false: the tensor isn't differentiated.")
    sparse: Sparse | None = optional(
        "Makes it a SparseTensor of the dense shape `shape`; the values are those of its nonzeros.",
        {"nnz": 5},
    )
    ragged: Ragged | None = optional(
        "Makes it a RaggedTensor; the values are its flat values.", {"row_lengths": [2, 0, 3]}
    )
    dict_: Annotated[dict[leaf.Label, Tensors], Field(min_length=1), _NAMED] | None = optional(
        "A dict of inputs by key, labelled `x.key`.", {"w": {"shape": [3, 2]}}, alias="dict"
    )
    tuple_: Annotated[list[Tensors], Field(min_length=1), _LISTED] | None = optional(
        "A tuple of inputs, labelled `x[0]`, `x[1]`.", [{"shape": [3]}, {"shape": [2]}], alias="tuple"
    )
    list_: Annotated[list[Tensors], Field(min_length=1), _LISTED] | None = optional(
        "A list of inputs, labelled `x[0]`, `x[1]`, where a list alone can't stand.",
        [{"shape": [3]}],
        alias="list",
    )
    object_: leaf.ClassName | None = optional(
        "A dataclass, named tuple or the like, which is called with its fields by keyword.",
        "package.module:State",
        alias="object",
    )
    fields: Annotated[dict[leaf.Label, Tensors], Field(min_length=1), _NAMED] | None = optional(
        "The fields of an object, labelled `x.field`.", {"h": {"shape": [2]}}
    )

    @property
    def sources(self) -> dict[str, Any]:
        """The values of generators' keys, by key; a sound input has at most one."""
        written = {kind: getattr(self, _attribute(kind)) for kind in GENERATORS}
        return {kind: value for kind, value in written.items() if value is not None}

    @property
    def structure(self) -> str:
        """The key that makes this a structure of inputs: dict, tuple, list or object; empty for a tensor."""
        if self.object_ is not None or self.fields is not None:
            return "object"
        structures = {"dict": self.dict_, "tuple": self.tuple_, "list": self.list_}
        return next((key for key, parts in structures.items() if parts is not None), "")


def form_of(value: object) -> str:
    """Return a value's tag in a union of a list, a mapping and nothing."""
    if value is None or isinstance(value, BaseModel):
        return NOTHING if value is None else MAPPING
    return LIST if isinstance(value, list) else MAPPING


def word_or_mapping(value: object) -> str:
    """Return a value's tag in a union of a word and a mapping."""
    return MAPPING if isinstance(value, (dict, BaseModel)) else WORD


def word_or_list(value: object) -> str:
    """Return a value's tag in a union of a word and a list."""
    return LIST if isinstance(value, list) else WORD


Tensors = Annotated[
    Annotated[InputModel, Tag(MAPPING)]
    | Annotated[Annotated[list[Annotated[InputModel, _NO_LIST]], Field(min_length=1), _LISTED], Tag(LIST)]
    | Annotated[None, Tag(NOTHING)],
    Discriminator(form_of),
]
InputModel.model_rebuild()
