"""Values as JSON and back: the one codec for reports, lock files and caches.

A dataclass is written field by field, under the names of its fields; a `Layout` says where it differs.
Numbers that JSON can't express are written as "nan", "inf" and "-inf", and complex ones as [re, im].

Reading follows the types of the fields. What is read was written by gradcheck, but a merge, a broken
connection or a person may have damaged it: anything that doesn't fit is refused, with its place.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

from gradcheck_cli.visible import cut

Value = TypeVar("Value")

# No count reaches this. Larger integers overflow a float and make messages unreadable.
_LARGEST_INTEGER = 2**63
_WORDS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_SHOWN = 40  # characters of a value in a message


class TypeFault(ValueError):  # noqa: N818 (a fault, as those of specs are called)
    """A value isn't what is required in its place; the text says where, and what is required."""


@dataclass(frozen=True)
class Layout:
    """How a dataclass is written, if not each field under its own name."""

    is_list: bool = False  # whether it is written as the list of its fields
    order: tuple[str, ...] = ()  # the keys that come first; the others follow in the order of the fields
    inline: frozenset[str] = frozenset()  # groups of fields that are written among the others
    left_out: frozenset[str] = frozenset()  # fields that aren't written
    null: frozenset[str] = frozenset()  # text fields that are written as null if they are empty
    # key -> what is written under it, in addition to the fields or instead of the field of that name
    computed: Mapping[str, Callable[[Any], object]] = field(default_factory=dict)
    # turns a mapping, at a place, into one that has each field
    unfold: Callable[[dict[str, Any], str], dict[str, Any]] = lambda content, _: content
    # raises `TypeFault` if what was read, at a place, contradicts itself
    require: Callable[[Any, str], None] = lambda *_: None


Layouts = Mapping[type, Layout]
_FIELDS_ALONE = Layout()


def plain(value: object, layouts: Layouts | None = None) -> Any:  # noqa: ANN401 (JSON)
    """Return a value in JSON's types.

    Args:
        value: dataclasses, enumerations, mappings, sequences, numbers, text; scalars of NumPy's too.
        layouts: the dataclasses that aren't written field by field.

    Raises:
        TypeError: it contains something else.
    """
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):  # a NumPy float64 is one too, and prints otherwise
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, complex):
        value = (value.real, value.imag)
    elif isinstance(value, frozenset):
        value = sorted(value)
    elif is_dataclass(value) and not isinstance(value, type):
        value = _parts(value, (layouts or {}).get(type(value), _FIELDS_ALONE))
    if isinstance(value, dict):
        return {key: plain(item, layouts) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, layouts) for item in value]
    if callable(scalar := getattr(value, "item", None)):  # of NumPy's
        return plain(scalar(), layouts)
    raise TypeError(f"it holds a {type(value).__name__}, which isn't sent or written: {value!r}")


def write(value: object, layouts: Layouts | None = None) -> str:
    """Return a value as JSON text for people, too, that ends in a newline; see `plain`."""
    return json.dumps(plain(value, layouts), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _parts(value: Any, layout: Layout) -> Any:  # noqa: ANN401 (a dataclass)
    """Return the parts of a dataclass in the order in which they are written."""
    own: dict[str, Any] = {}
    for own_field in fields(value):
        part = getattr(value, own_field.name)
        is_inline = own_field.name in layout.inline
        own |= _parts(part, _FIELDS_ALONE) if is_inline else {own_field.name: part}
    if layout.is_list:
        return list(own.values())
    written = {name: item for name, item in own.items() if name not in layout.left_out}
    written |= {name: own[name] or None for name in layout.null}
    written |= {key: compute(value) for key, compute in layout.computed.items()}
    return {key: written[key] for key in dict.fromkeys((*layout.order, *written))}


def parse(text: str | bytes) -> Any:  # noqa: ANN401 (JSON)
    """Parse JSON strictly, without `NaN` and `Infinity`, which JSON doesn't have.

    Raises:
        TypeFault: it isn't JSON, or is nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise TypeFault("it is nested too deeply") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, numbers of thousands of digits
        raise TypeFault(str(error)) from None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def read(
    kind: type[Value] | Any,  # noqa: ANN401 (a type, such as `tuple[int, ...]`)
    content: object,
    place: str = "",
    *,
    layouts: Layouts | None = None,
) -> Any:  # noqa: ANN401 (a value of the kind)
    """Read a value of a type.

    Args:
        kind: the type. In a dataclass each field must be present, even one with a default, since gradcheck
            writes all of them.
        place: its place, for messages.
        layouts: the dataclasses that aren't written field by field.

    Raises:
        TypeFault: it isn't a value of that type.
    """
    layouts = layouts or {}
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(inner, content, place, layouts)
    if origin is tuple:
        return _read_tuple(inner, content, place, layouts)
    if origin is dict:
        items = _expect(dict, content, place, "a mapping")
        return {key: read(inner[1], item, f"{place}.{key}", layouts=layouts) for key, item in items.items()}
    if is_dataclass(kind):
        return _read_dataclass(typing.cast("type", kind), content, place, layouts)
    return _read_scalar(kind, content, place)


def _read_union(inner: tuple[Any, ...], content: object, place: str, layouts: Layouts) -> object:
    if complex in inner:
        return _read_complex(content, place)
    if content is None and type(None) in inner:
        return None
    (kind,) = [option for option in inner if option is not type(None)]
    return read(kind, content, place, layouts=layouts)


def _read_dataclass(
    kind: type, content: object, place: str, layouts: Layouts, left_out: frozenset[str] = frozenset()
) -> object:
    layout, hints = layouts.get(kind, _FIELDS_ALONE), _fields_of(kind)
    left_out |= layout.left_out
    if layout.is_list:
        return kind(*_read_tuple(tuple(hints.values()), content, place, layouts))
    items = layout.unfold(_expect(dict, content, place, "a mapping"), place)
    items = {key: "" if item is None and key in layout.null else item for key, item in items.items()}
    values = {}
    for name, hint in hints.items():
        if name in layout.inline:
            values[name] = _read_dataclass(hint, items, place, layouts, left_out)
            continue
        if name not in items:
            if name in left_out:
                continue
            raise TypeFault(f"{place or 'it'} lacks {name!r}")
        values[name] = read(hint, items[name], f"{place}.{name}".lstrip("."), layouts=layouts)
    value = kind(**values)
    layout.require(value, place)
    return value


def _read_scalar(kind: Any, content: object, place: str) -> Any:  # noqa: ANN401 (a type, and its value)
    if issubclass(kind, Enum):
        try:
            return kind(_expect(str, content, place, "a word"))
        except ValueError:
            raise _fault(content, place, "one of " + ", ".join(member.value for member in kind)) from None
    if kind is float:
        return _read_number(content, place)
    if kind is int:
        integer = _expect(int, content, place, "a whole number")
        if isinstance(content, bool) or not -_LARGEST_INTEGER < integer < _LARGEST_INTEGER:
            raise _fault(content, place, "a whole number")
        return integer
    if kind is bool:
        return _expect(bool, content, place, "true or false")
    return _expect(str, content, place, "text")


def _read_number(content: object, place: str) -> float:
    """Read a float: a number, or one of the words for numbers that JSON can't express.

    Raises:
        TypeFault: it is none, or too large for a float.
    """
    if isinstance(content, str) and content in _WORDS:
        return _WORDS[content]
    if isinstance(content, bool) or not isinstance(content, int | float):
        raise _fault(content, place, "a number")
    if abs(content) == float("inf") or abs(content) >= 2**1024:  # an integer larger than any float
        raise _fault(content, place, "a number")
    return float(content)


def _read_complex(content: object, place: str) -> float | complex:
    if not isinstance(content, list):
        return _read_number(content, place)
    if len(content) != 2:  # noqa: PLR2004 (its two parts)
        raise _fault(content, place, "a number, or [re, im]")
    return complex(_read_number(content[0], place), _read_number(content[1], place))


def _read_tuple(inner: tuple[Any, ...], content: object, place: str, layouts: Layouts) -> tuple[Any, ...]:
    items = _expect(list, content, place, "a list")
    kinds = [inner[0]] * len(items) if inner[-1] is Ellipsis else list(inner)
    if len(kinds) != len(items):
        raise _fault(content, place, f"a list of {len(kinds)}")
    return tuple(
        read(kind, item, f"{place}[{index}]", layouts=layouts)
        for index, (kind, item) in enumerate(zip(kinds, items, strict=True))
    )


def map_texts(value: Any, convert: Callable[[str], str]) -> Any:  # noqa: ANN401 (any record, or a part of one)
    """Return a value with all texts in it converted: in dataclasses, tuples and the values of mappings."""
    if type(value) is str:
        return convert(value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {own.name: map_texts(getattr(value, own.name), convert) for own in fields(value) if own.init}
        return replace(value, **parts)
    if isinstance(value, tuple):
        return tuple(map_texts(item, convert) for item in value)
    if isinstance(value, dict):
        return {key: map_texts(item, convert) for key, item in value.items()}
    return value


def written_fields(kind: type, layout: Layout) -> dict[str, Any]:
    """Return the types of the fields that a dataclass is written with, those of its groups among them."""
    types_of: dict[str, Any] = {}
    for name, hint in _fields_of(kind).items():
        types_of |= _fields_of(hint) if name in layout.inline else {name: hint}
    return types_of


@lru_cache(maxsize=64)
def _fields_of(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {own.name: hints[own.name] for own in fields(kind) if own.init or own.default is MISSING}


def _expect(kind: type[Value], content: object, place: str, what: str) -> Value:
    if not isinstance(content, kind):
        raise _fault(content, place, what)
    return content


def _fault(content: object, place: str, what: str) -> TypeFault:
    shown = cut(json.dumps(content, ensure_ascii=True, default=str), _SHOWN)
    return TypeFault(f"{place or 'it'} must be {what}, but is {shown}")
