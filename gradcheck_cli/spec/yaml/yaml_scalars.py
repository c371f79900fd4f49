"""Plain YAML scalars by the 1.2 core schema: `1e-6` is a number, `no` is text, `012` is twelve."""

from __future__ import annotations

import math
import re
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool | None

MAX_DIGITS = 400  # no float64 has more than 309 digits before the point

_NULL = re.compile(r"(?:~|null|Null|NULL|)")
_TRUE = re.compile(r"(?:true|True|TRUE)")
_FALSE = re.compile(r"(?:false|False|FALSE)")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"(?:0o[0-7]+|0x[0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"([-+]?)(?:\.inf|\.Inf|\.INF)")
_NAN = re.compile(r"(?:\.nan|\.NaN|\.NAN)")


def read_scalar(text: str) -> Scalar:  # noqa: PLR0911 (one return per form)
    """Resolve a plain scalar by the YAML 1.2 core schema.

    Raises:
        OverflowError: the number is beyond what a float64 holds.
    """
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text) or _FALSE.fullmatch(text):
        return text[0] in "tT"
    if _INTEGER.fullmatch(text) or _BASED.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise OverflowError
        # Base 0 would take Python's word on leading zeros; in YAML 1.2, 012 is twelve.
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        number = int(text, base)
        float(number)
        return number
    if infinity := _INFINITY.fullmatch(text):
        return -math.inf if infinity[1] == "-" else math.inf
    if _NAN.fullmatch(text):
        return math.nan
    if _FLOAT.fullmatch(text):
        if math.isinf(float(text)):
            raise OverflowError
        return float(text)
    return text
