import math

import pytest

from gradcheck_cli.spec import yaml_tree
from gradcheck_cli.spec.merge_trees import merge_op
from gradcheck_cli.spec.written import FaultLog, show_place
from gradcheck_cli.spec.yaml_tree import read_scalar


def parse(content):
    """Return the documents of a file called a, and the faults of the file."""
    log = FaultLog()
    return yaml_tree.parse(log, "a", content), list(log.faults)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-.5e1", -5.0),
        ("012", 12),
        ("0o17", 15),
        ("0x1F", 31),
        ("+1", 1),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
        ("~", None),
        ("null", None),
        ("", None),
        ("True", True),
        ("false", False),
    ],
)
def test_core_scalars(text, value):
    found = read_scalar(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "on",
        "yes",
        "y",
        "off",
        "1:30",
        "2001-01-01",
        "1_000",
        "0b1",
        "nan",
        "inf",
        ".",
        "-",
        "1+2j",
        "tRUE",
    ],
)
def test_yaml_1_1_relics_are_text(text):
    assert read_scalar(text) == text


def test_nan():
    assert math.isnan(read_scalar(".nan"))


def test_quoted_scalars_are_text():
    (document,), faults = parse(b"a: '1'\nb: \"~\"\nc: !!str 1")
    assert document.plain() == {"a": "1", "b": "~", "c": "1"}
    assert not faults


def places_of(document, *paths):
    found = [document.at(*path).place for path in paths]
    return [(place.spot.line, show_place(place.keys)) for place in found]


def test_values_know_line_and_place():
    (document,), _ = parse(b"# first\na:\n  b: [1,\n    {c: 2}]\n  d:\n")
    assert places_of(document, (), ("a", "b"), ("a", "b", 1, "c"), ("a", "d"), ("a", "d", "e")) == [
        (2, ""),
        (3, "a.b"),
        (4, "a.b[1].c"),
        (5, "a.d"),
        (5, "a.d.e"),
    ]
    assert document.at("a", "b", 7).data is None


def test_an_alias_has_a_place_of_its_own():
    (document,), faults = parse(b"a: &x {k: [1]}\nb: *x\n")
    assert document.plain() == {"a": {"k": [1]}, "b": {"k": [1]}}
    assert places_of(document, ("b", "k", 0)) == [(1, "b.k[0]")]
    assert not faults


def test_a_merged_part_has_the_place_of_the_uppermost_text_that_holds_it():
    (above, below), _ = parse(b"inputs: {a: 1}\n---\ninputs: {a: 2, b: 3}\ny: 1\n")
    merged = merge_op(below, above)
    paths = [("inputs", "a"), ("inputs", "b"), ("y",), ("inputs", "c")]
    assert [line for line, _ in places_of(merged, *paths)] == [1, 3, 4, 1]


BOMB = b"a: &a [x, x]\n" + b"".join(
    b"k%d: &k%d [*%s, *%s, *%s]\n" % (i, i, p, p, p)
    for i, p in enumerate([b"a", *(b"k%d" % i for i in range(29))])
)
TOWER = b"k0: &k0 " + b"[" * 40 + b"]" * 40 + b"\nk1: &k1 " + b"[" * 40 + b"*k0" + b"]" * 40


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"a: 1\nb: [1, 2\nc: 3", "a:3: must be YAML, but did not find expected ',' or ']'"),
        (b"a:\n\tb: 1", "a:2: must be YAML, but found character that cannot start any token"),
        (b"a: 1\nb: \xff", "a:2: must be UTF-8, but got the byte 0xff. Save the file as UTF-8"),
        (b"a: 1\nb: \x00", "a:2: must be text, but got the character U+0000. Remove it"),
        (b"a: 1\nb: 2\na: 3", "a:3: a: duplicate key; it stands on line 1 already"),
        (b"x: {a: 1, 'a': 2}", "a:1: x.a: duplicate key; it stands on line 1 already"),
        (
            b"a:\n  <<: {b: 1}",
            "a:2: a.<<: merge keys aren't supported. Write the keys out, or use `defaults:`",
        ),
        (b"a:\n  1: 2", "a:2: a.1: must have text as key, but got 1. Put it in quotes"),
        (b"? [a]\n: 1", "a:1: must have text as keys, but got a list or mapping as a key"),
        (b"a: *b", "a:1: a: must refer to an anchor above, but got *b"),
        (b"a: &a\n  - *a", "a:2: a[0]: must not contain itself, but *a stands inside &a"),
        (b"[" * 10_000, "a:1: must be nested at most 64 deep, but got more levels"),
        (b"- " * 10_000, "a:1: must be nested at most 64 deep, but got more levels"),
        (TOWER, "a:2: must be nested at most 64 deep, but got more levels"),
        (BOMB, "a:10: must hold at most 100000 values after expanding aliases. Put arrays in `file:`"),
        (
            b"a: " + b"9" * 5000,
            "a:1: a: must be a number that float64 can hold, but got 99999999999999999999...",
        ),
        (
            b"a: 0x" + b"f" * 390,
            "a:1: a: must be a number that float64 can hold, but got 0xffffffffffffffffff...",
        ),
        (b"a: -1e999", "a:1: a: must be a number that float64 can hold, but got -1e999"),
        (b"a: !!python/none x", "a:1: a: must be plain YAML, but got the tag !!python/none. Remove the tag"),
        (b"a: !mine [1]", "a:1: a: must be plain YAML, but got the tag !mine. Remove the tag"),
        (b"%YAML 3.0\n--- a", "a:1: must be YAML, but found incompatible YAML document"),
    ],
)
def test_faults(content, fault):
    _, faults = parse(content)
    assert str(faults[-1]).startswith(fault)


def test_a_tab_gets_a_remedy():
    _, (fault,) = parse(b"a:\n\tb: 1")
    assert fault.message.endswith("Indent with spaces, not tabs")


def test_a_file_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(yaml_tree, "MAX_BYTES", 3)
    _, (fault,) = parse(b"a: 1")
    assert str(fault) == "a: must be at most 3 bytes, but got 4. Put large arrays in `file:`"


def test_the_pure_python_parser_serves_too(monkeypatch):
    monkeypatch.delattr(yaml_tree.yaml, "CSafeLoader")
    (document,), faults = parse(b"a: ['1', 2, no]\n")
    assert document.plain() == {"a": ["1", 2, "no"]}
    assert not faults
