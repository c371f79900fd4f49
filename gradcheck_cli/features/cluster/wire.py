"""Cases and results as JSON and back, exactly. They are sent to machines that may have another gradcheck.

Pickle isn't used: it would read another version's value as something else, or fail, without a clear message.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.results import CaseResult
from gradcheck_cli.serial import plain
from gradcheck_cli.spec.case import Case

if TYPE_CHECKING:
    from collections.abc import Iterator


def _types_in(*kinds: Any) -> Iterator[type]:  # noqa: ANN401 (types, such as `tuple[int, ...]`)
    """Yield the dataclasses and enumerations that occur in values of some types."""
    waiting, yielded = list(kinds), set[type]()
    while waiting:
        kind = waiting.pop()
        if is_dataclass(kind) and isinstance(kind, type) and kind not in yielded:
            waiting += typing.get_type_hints(kind, localns={"Mapping": Mapping}).values()
            yielded.add(kind)
            yield kind
        elif isinstance(kind, type) and issubclass(kind, Enum):
            yield kind
        waiting += typing.get_args(kind)


# The types that may be received, by name.
_TYPES: dict[str, Any] = {
    f"{kind.__module__.removeprefix('gradcheck_cli.')}.{kind.__name__}": kind
    for kind in _types_in(Case, CaseResult)
}
_NAMES: dict[type, str] = {kind: name for name, kind in _TYPES.items()}
_KIND, _VALUE = "~", "is"  # the keys of a mapping that represents a value of a type that JSON lacks
# The types that JSON lacks, by name.
_BUILT: dict[str, type] = {
    "float": float,
    "complex": complex,
    "tuple": tuple,
    "frozenset": frozenset,
    "dict": dict,
}


class WireError(GradcheckError):
    """The message isn't one that this gradcheck knows: another version wrote it."""


def dumps(value: object) -> str:
    """Return a value of cases or results, or a list of them, as JSON.

    Raises:
        TypeError: it contains a value of another type.
    """
    return json.dumps(plain(value, mark=_tag), allow_nan=False, ensure_ascii=False)


def loads(text: str | bytes) -> Any:  # noqa: ANN401 (whatever was written)
    """Return the value that `dumps` has written.

    Raises:
        WireError: another version wrote it, with other types or other fields.
    """
    return _untag(json.loads(text))


def _tag(value: object, form: Any) -> object:  # noqa: ANN401 (JSON)
    """Return the mapping for a value of a type that JSON lacks: the type's name, and the content."""
    kind = type(value)
    if isinstance(value, dict):
        if _KIND not in value and all(isinstance(key, str) for key in value):
            return form
        form = [[plain(key, mark=_tag), item] for key, item in form.items()]
    name = _NAMES.get(kind) or next((name for name, built in _BUILT.items() if isinstance(value, built)), "")
    if not name:
        raise TypeError(f"a case or a result holds a {kind.__name__}, which isn't sent: {value!r}")
    return {_KIND: name, _VALUE: form}


def _untag(plain: Any) -> Any:  # noqa: ANN401 (as `loads`)
    if isinstance(plain, list):
        return [_untag(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    if _KIND not in plain:
        return {key: _untag(item) for key, item in plain.items()}
    kind, inner = plain[_KIND], _untag(plain[_VALUE])
    if kind in _BUILT:
        return complex(*inner) if kind == "complex" else _BUILT[kind](inner)
    if kind not in _TYPES:
        raise WireError(f"this gradcheck knows no {kind}: another version wrote it.")
    if not isinstance(inner, dict):
        return _TYPES[kind](inner)
    try:
        return _TYPES[kind](**inner)
    except TypeError as error:  # an unknown field, or a required one that is missing
        raise WireError(f"this gradcheck's {kind} is another: {error}.") from None
