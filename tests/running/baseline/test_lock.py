from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradcheck_cli.errors import UsageError
from gradcheck_cli.features.baseline.lock import (
    HEADER,
    Extent,
    LockedPair,
    compare,
    is_same,
    lock_text,
    read_lock,
    update_pairs,
)
from gradcheck_cli.gate import Fingerprint, Projection, Tolerance
from gradcheck_cli.results import Status

NAME = ("huber", "default", "float64", "graph", "dy/dx", "specs/huber.yaml")
BASE = LockedPair(
    *NAME, status=Status.PASSED, connected=True, error=1.234e-13, noise=3e-12, allowed=1.0049e-6,
    tolerance=Tolerance(1.23456e-6, 1e-10), extent=Extent(("linearity",), samples=2),
    fingerprint=Fingerprint((Projection(1.23456789, 1e-8),), (Projection(float("nan"), 0.0),)),
)  # fmt: skip
LINE = (
    '{"op": "huber", "case": "default", "dtype": "float64", "mode": "graph", "pair": "dy/dx", '
    '"spec": "specs/huber.yaml", '
    '"status": "passed", "connected": true, "samples": 2, "checks_off": ["linearity"], '
    '"error": "1.23e-13", "noise": "3.00e-12", "allowed": "1.00e-06", '
    '"rtol": 1.23456e-06, "scaled": 1e-10, "atol": null, "analytic": ["1.23456789e+00 ± 1e-08"], '
    '"forward": ["nan ± 0e+00"]}'
)


def keyed(*entries):
    return {entry.key: entry for entry in entries}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_one_line_for_each_pair_sorted():
    entries = [
        replace(BASE, op=op, pair=pair) for op, pair in (("b", "dy/dx"), ("a", "dz/dx"), ("a", "dy/dx"))
    ]
    lines = lock_text(keyed(*entries), Path.cwd()).splitlines()
    assert lines[0] == HEADER == '{"gradcheck_baseline": 1}'
    assert [(line[8:9], line.split('"pair": ')[1][1:6]) for line in lines[1:]] == [
        ("a", "dy/dx"),
        ("a", "dz/dx"),
        ("b", "dy/dx"),
    ]


def test_a_line():
    assert lock_text(keyed(BASE), Path.cwd()).splitlines()[1] == LINE


def test_what_is_written_is_read_as_the_same(tmp_path):
    file = tmp_path / "gradients.lock"
    bare = replace(BASE, op="bare", tolerance=None, fingerprint=None, connected=False)
    user = replace(BASE, op="user", tolerance=Tolerance(0.1, 0.0, 3.3e-7))
    entries = keyed(BASE, bare, user)
    file.write_text(lock_text(entries, tmp_path), encoding="utf-8")
    again = read_lock(file)
    assert again.keys() == entries.keys()
    assert all(is_same(again[key], entries[key]) for key in entries)
    assert compare(again, entries) == ()
    assert lock_text(again, tmp_path) == file.read_text(encoding="utf-8")


def test_specs_are_named_from_the_lock_files_folder(tmp_path, monkeypatch):
    (tmp_path / "ci").mkdir()
    (tmp_path / "sub").mkdir()
    file = tmp_path / "ci" / "gradients.lock"
    file.write_text(lock_text(keyed(BASE), file.parent), encoding="utf-8")
    assert '"spec": "../specs/huber.yaml"' in file.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path / "sub")
    (entry,) = read_lock(file).values()
    assert entry.spec == "../specs/huber.yaml"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "gradients.lock:1: must be {"),
        ('{"gradcheck_baseline": 9}\n', "gradients.lock:1: must be {"),
        (f"{HEADER}\n<<<<<<< HEAD\n{LINE}\n", "gradients.lock:2: holds git's marks of a conflict"),
        (
            f"{HEADER}\n{LINE}\n{LINE}\n",
            "gradients.lock:3: huber, case default, float64, dy/dx is there twice, as after",
        ),
        (f"{HEADER}\n" + LINE.replace('"passed"', '"fine"'), "gradients.lock:2: isn't a pair's line"),
        (f"{HEADER}\n" + LINE.replace('"error": "1.23e-13"', '"error": 1'), "error must be text, but is 1"),
        (f"{HEADER}\n" + LINE.replace("1.23e-13", "nan"), "'nan' is no size"),
        (f"{HEADER}\n" + LINE.replace("1.23e-13", "-1"), "'-1' is no size"),
        (f"{HEADER}\n" + LINE.replace(" ± ", " "), "isn't a pair's line"),
        (f"{HEADER}\n[]\n", "isn't a pair's line"),
        (f"{HEADER}\n" + "[" * 100_000, "isn't a pair's line"),
        (f"{HEADER}\n" + "x\n" * 30, "... and 20 more"),
    ],
)
def test_what_is_no_lock_file(text, message):
    Path("gradients.lock").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        read_lock(Path("gradients.lock"))
    assert message in str(caught.value)


def test_an_update_leaves_alone_what_has_not_changed():
    noise = replace(BASE, error=3e-13, noise=1e-12, allowed=1.1e-6)
    entries, update = update_pairs(keyed(BASE), keyed(noise), is_gone=lambda _: True)
    assert entries[BASE.key] is BASE
    assert str(update) == "1 as they were"


def test_an_update_takes_up_removes_and_leaves_out():
    old = [replace(BASE, op=op) for op in ("drifts", "gone", "elsewhere", "wrong")]
    new = [
        replace(BASE, op="drifts", error=1e-7),
        replace(BASE, op="fresh"),
        replace(BASE, op="wrong", status=Status.MISMATCHED, error=1.0),
        replace(BASE, op="also_wrong", status=Status.ERROR),
    ]
    entries, update = update_pairs(keyed(*old), keyed(*new), is_gone=lambda entry: entry.op == "gone")
    assert {key[0]: entry.error for key, entry in entries.items()} == {
        "drifts": 1e-7,
        "fresh": BASE.error,
        "elsewhere": BASE.error,
        "wrong": BASE.error,  # as it was when it was right
    }
    assert update == (
        "1 new, 1 changed, 1 removed, 2 as they were, "
        "2 not right, so not recorded (--accept records them as known)"
    )


@pytest.mark.once  # a hundred examples
@given(st.text(max_size=20), st.text(max_size=20), st.floats(min_value=0, allow_nan=False))
def test_any_name_and_number_comes_back(tmp_path_factory, op, pair, error):
    file = tmp_path_factory.mktemp("lock") / "gradients.lock"
    entry = replace(BASE, op=op, pair=pair, error=error)
    file.write_bytes(lock_text(keyed(entry), file.parent).encode("utf-8", "backslashreplace"))
    (again,) = read_lock(file).values()
    assert again.key == entry.key
    assert compare({again.key: again}, {entry.key: entry}) == ()
