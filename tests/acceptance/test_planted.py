"""The command names a planted fault by pair and element, and goes on after what can't be checked."""

import re

import pytest
import yaml

from tests.rows.planted import FOLDER, planted

OPS = list(planted())
# What the issue asks to be found, by what it's called here.
ASKED = {
    "factor": "dy/dx",
    "sign": "dy/dx",
    "transpose": "dy/da",
    "one_element": "dy/dx",
    "no_broadcast_sum": "dy/dbias",
    "no_conjugate": "dy/da",
    "ignored_upstream": "",
    "swapped": "dy/da",
    "nan": "dy/dx",
    "none": "dy/dx",
}


@pytest.fixture
def check(tmp_path, monkeypatch, report):
    """Return a function that runs one planted op by the command line."""
    monkeypatch.chdir(FOLDER)  # its functions are beside it

    def run(name):
        (spec,) = [spec for _, op, _, spec in OPS if op == name]
        file = tmp_path / "spec.yaml"
        file.write_text(yaml.safe_dump(spec, sort_keys=False))
        return report(file, tmp=tmp_path)

    return run


# One of each: `tests/rows/planted.py` runs them all.
@pytest.mark.parametrize(
    ("op", "code"),
    [
        ("right_gather", 0),
        ("no_broadcast_sum", 1),
        ("gradient_raises", 3),
        ("jump", 3),
        ("cached_residual", 1),
    ],
)
def test_the_command_says_the_same_of_what_is_planted(check, op, code):
    (description,) = [one[2] for one in OPS if one[1] == op]
    word, _, rest = description.partition(" ")
    done = check(op)
    assert done.code == code
    assert {case["status"] for case in done.report["cases"]} == {word}
    assert "Traceback" not in done.out + done.err
    if word == "error":
        assert {case["error"]["kind"] for case in done.report["cases"]} == {rest}
        assert re.search(rf"ERROR GC3\d\d  {rest}: ", done.out)


@pytest.mark.on_change("one_element", "no_conjugate", "nan")
@pytest.mark.parametrize("name", ASKED)
def test_the_table_names_pair_and_element(check, name):
    done = check(name)
    label = ASKED[name]
    assert done.code == 1
    lines = done.out.splitlines()
    assert any(line.startswith("    reproduce: gradcheck run ") for line in lines)
    if not label:  # no pair is at fault, but the gradient as a function of its upstream
        assert any(line.split()[:3] == ["check", "linearity", "MISMATCH"] for line in lines)
        return
    rows = [line for line in lines if line.startswith(f"  {label} ")]
    assert rows
    assert all("MISMATCH" in row for row in rows)
    if name != "no_broadcast_sum":  # which has another shape: no element to name
        output, _, taken = label.partition("/")
        # Of a complex tensor the part is named, too.
        element = re.compile(
            rf"    worst: (re |im )?{output[1:]}\[[\d,]*\] / (re |im )?{taken[1:]}\[[\d,]*\]"
        )
        assert any(element.match(line) for line in lines)
        assert any("analytic" in line for line in lines)
        assert any("numeric" in line for line in lines)


def test_the_whole_folder_goes_on_after_what_can_not_be_checked(tmp_path, monkeypatch, report):
    # broken.yaml holds a fault of every kind; a good spec behind it still runs.
    monkeypatch.chdir(FOLDER)
    good = tmp_path / "good.yaml"
    good.write_text("{op: good, forward: 'tensorflow:tanh', inputs: {x: {shape: [2]}}}")
    done = report("broken.yaml", good, tmp=tmp_path)
    assert done.code == 3
    assert [case["status"] for case in done.report["cases"]][-1] == "passed"
    assert len(done.report["cases"]) == len([row for row in OPS if row[0] == "broken"]) + 1
