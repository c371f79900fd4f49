"""JSON read as values of given types, and what is said of what isn't one."""

import math
from dataclasses import dataclass
from enum import Enum

import pytest

from gradcheck_cli import serial
from gradcheck_cli.serial import TypeFault


class Word(str, Enum):
    GOOD = "good"


@dataclass(frozen=True)
class Inner:
    number: float
    parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outer:
    name: str
    word: Word
    inner: Inner | None
    pair: tuple[str, bool]
    counts: dict[str, int]
    value: float | complex


CONTENT = {
    "name": "a",
    "word": "good",
    "inner": {"number": 2, "parts": [1, 2]},
    "pair": ["x", True],
    "counts": {"a": 1},
    "value": [1.0, "inf"],
}


def test_each_kind_of_type_is_read():
    found = serial.read(Outer, {**CONTENT, "more": "isn't looked at"})
    expected = Outer("a", Word.GOOD, Inner(2.0, (1, 2)), ("x", True), {"a": 1}, complex(1, math.inf))
    assert found == expected
    assert isinstance(found.inner.number, float)
    assert serial.read(Outer, {**CONTENT, "inner": None, "value": "nan"}).inner is None


FAULTS = [
    ("name", 3, "name must be text, but is 3"),
    ("word", "bad", "word must be one of good"),
    ("word", [], "word must be one of good, but is []"),
    ("inner", [], "inner must be a mapping"),
    ("inner", {"number": 1}, "inner lacks 'parts'"),
    ("inner", {"number": "1", "parts": []}, 'inner.number must be a number, but is "1"'),
    ("inner", {"number": True, "parts": []}, "inner.number must be a number, but is true"),
    ("inner", {"number": 10**400, "parts": []}, "inner.number must be a number, but is 1000"),
    ("inner", {"number": 1, "parts": [1, 2.0]}, "inner.parts[1] must be a whole number, but is 2.0"),
    ("inner", {"number": 1, "parts": [10**30]}, "inner.parts[0] must be a whole number"),
    ("pair", ["x"], "pair must be a list of 2"),
    ("pair", ["x", 1], "pair[1] must be true or false, but is 1"),
    ("counts", {"a": None}, "counts.a must be a whole number, but is null"),
    ("value", [1], "value must be a number, or [re, im]"),
    ("value", None, "value must be a number, but is null"),
]


@pytest.mark.parametrize(("key", "value", "words"), FAULTS, ids=[words for _, _, words in FAULTS])
def test_what_isnt_one_is_said_with_its_place(key, value, words):
    with pytest.raises(TypeFault) as caught:
        serial.read(Outer, {**CONTENT, key: value})
    assert words in str(caught.value)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "[" * 100_000, "{", b"\xff", "1" * 10_000])
def test_what_is_no_json(text):
    with pytest.raises(TypeFault):
        serial.parse(text)
