"""Read JSON as values of given types: dataclasses, enums, tuples, numbers; or say where it holds another.

What it reads was written by gradcheck, and spoilt by a merge, a cut connection or a hand.
"""

from __future__ import annotations

import json
import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Value = TypeVar("Value")

# Larger ones count nothing here, and are no float, or need more digits than a line has.
_LARGEST_INTEGER = 2**63
_WORDS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_SHOWN = 40  # characters of a value in a message


class TypeFault(ValueError):  # noqa: N818 (a fault, as those of specs are called)
    """A value that isn't what must stand there; the text says where, and what must."""


def parse(text: str | bytes) -> Any:  # noqa: ANN401 (JSON)
    """Parse JSON strictly: no `NaN` and no `Infinity`, which JSON has no word for.

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


def read(  # noqa: PLR0911 (one for each kind of type)
    kind: type[Value] | Any,  # noqa: ANN401 (a type, such as `tuple[int, ...]`)
    content: object,
    place: str = "",
    *,
    special: Mapping[type, Callable[[Any, str], Any]] | None = None,
) -> Any:  # noqa: ANN401 (a value of the kind)
    """Read a value of a type.

    Args:
        kind: the type: of a dataclass, each field is looked for under its name; one with a default too, since
            what gradcheck writes has them all.
        content: what JSON gave.
        place: where it stands, for messages.
        special: how types are read that are written in another form.

    Raises:
        TypeFault: it isn't one.
    """
    special = special or {}
    if kind in special:
        return special[kind](content, place)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if complex in inner:
            return _complex(content, place)
        if content is None and type(None) in inner:
            return None
        (kind,) = [one for one in inner if one is not type(None)]
        return read(kind, content, place, special=special)
    if origin is tuple:
        return _tuple(inner, content, place, special)
    if origin is dict:
        items = _expect(dict, content, place, "a mapping")
        return {key: read(inner[1], value, f"{place}.{key}", special=special) for key, value in items.items()}
    if is_dataclass(kind):
        items = _expect(dict, content, place, "a mapping")
        found = {}
        for name, one in _fields_of(typing.cast("type", kind)).items():
            if name not in items:
                raise TypeFault(f"{place or 'it'} lacks {name!r}")
            found[name] = read(one, items[name], f"{place}.{name}".lstrip("."), special=special)
        return typing.cast("type", kind)(**found)
    return _plain(kind, content, place)


def _plain(kind: Any, content: object, place: str) -> Any:  # noqa: ANN401 (a type, and its value)
    if issubclass(kind, Enum):
        try:
            return kind(_expect(str, content, place, "a word"))
        except ValueError:
            raise _fault(content, place, "one of " + ", ".join(one.value for one in kind)) from None
    if kind is float:
        return number(content, place)
    if kind is int:
        found = _expect(int, content, place, "a whole number")
        if isinstance(content, bool) or not -_LARGEST_INTEGER < found < _LARGEST_INTEGER:
            raise _fault(content, place, "a whole number")
        return found
    if kind is bool:
        return _expect(bool, content, place, "true or false")
    return _expect(str, content, place, "text")


def number(content: object, place: str) -> float:
    """Read a number; "nan", "inf" and "-inf" are those.

    Raises:
        TypeFault: it is none, or too large for a float.
    """
    if isinstance(content, str) and content in _WORDS:
        return _WORDS[content]
    if isinstance(content, bool) or not isinstance(content, int | float):
        raise _fault(content, place, "a number")
    if abs(content) == float("inf") or abs(content) >= 2**1024:  # of 400 digits: beyond any float
        raise _fault(content, place, "a number")
    return float(content)


def _complex(content: object, place: str) -> float | complex:
    if not isinstance(content, list):
        return number(content, place)
    if len(content) != 2:  # noqa: PLR2004 (its two parts)
        raise _fault(content, place, "a number, or [re, im]")
    return complex(number(content[0], place), number(content[1], place))


def _tuple(
    inner: tuple[Any, ...], content: object, place: str, special: Mapping[type, Callable[[Any, str], Any]]
) -> tuple[Any, ...]:
    items = _expect(list, content, place, "a list")
    kinds = [inner[0]] * len(items) if inner[-1] is Ellipsis else list(inner)
    if len(kinds) != len(items):
        raise _fault(content, place, f"a list of {len(kinds)}")
    return tuple(
        read(kind, item, f"{place}[{at}]", special=special)
        for at, (kind, item) in enumerate(zip(kinds, items, strict=True))
    )


@lru_cache(maxsize=64)
def _fields_of(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {one.name: hints[one.name] for one in fields(kind) if one.init or one.default is MISSING}


def _expect(kind: type[Value], content: object, place: str, what: str) -> Value:
    if not isinstance(content, kind):
        raise _fault(content, place, what)
    return content


def _fault(content: object, place: str, what: str) -> TypeFault:
    shown = json.dumps(content, ensure_ascii=True, default=str)
    shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
    return TypeFault(f"{place or 'it'} must be {what}, but is {shown}")
