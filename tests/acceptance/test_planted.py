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
