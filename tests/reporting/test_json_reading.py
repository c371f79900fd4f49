from __future__ import annotations

import json

import pytest

from gradcheck_cli.errors import UsageError
from gradcheck_cli.gate import BaselineFinding, Change, Fingerprint, Projection, Shard, Tolerance
from gradcheck_cli.reporting.exchange.json_report import read_report, to_json
from gradcheck_cli.results import (
    Printed,
    UndifferentiatedOutput,
    WorstElement,
)
from tests.reporting.figures import tanh_figure
from tests.support.flat_results import altered


@pytest.fixture
def full(report, mismatched):
    pair = altered(
        mismatched.pairs[0],
        worst=WorstElement((0,), (1,), 1 + 2j, float("-inf"), float("inf"), "re", "im"),
        max_abs_error=float("inf"),
        miss_probability=0.25,
        tolerance=Tolerance(1e-4, 0.0, 1e-6),
        fingerprint=Fingerprint((Projection(1.0, 1e-9),), (Projection(float("inf"), 0.0),)),
    )
    case = altered(
        mismatched,
        pairs=(pair,),
        output=Printed(("printed",), "a/b"),
        source="ops.py:3",
        checks_off=("linearity",),
        not_differentiated=(UndifferentiatedOutput("y.places", "int32"),),
        samples=2,
        reason="why",
    )
    finding = BaselineFinding(
        "a", "default", "float64", "graph", "dy/dx", Change.DRIFTED, "message", "a.yaml:1"
    )
    return altered(
        report,
        cases=(case, *report.cases),
        shard=Shard(1, 2, (("a", "b", "float64"),)),
        baseline=(finding,),
        unchecked=("x",),
        strict=True,
        notices=("n",),
    )


def test_what_is_read_is_what_was_written(full, tmp_path):
    file = tmp_path / "report.json"
    file.write_text(to_json(full))
    again = read_report(file)
    assert to_json(again) == to_json(full)
    assert again.cases[0].pairs[0].fingerprint == full.cases[0].pairs[0].fingerprint
    assert (again.shard, again.baseline, again.exit_code) == (full.shard, full.baseline, full.exit_code)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "isn't JSON"),
        ("[" * 100_000, "isn't JSON"),
        ("[]", "isn't a report of gradcheck's; write one with --report json=FILE."),
        ('{"schema_version": 9, "cases": []}', "must have schema_version 1, but has 9."),
        ('{"schema_version": 1, "cases": []}', "lacks 'gradcheck_version'"),
        ('{"schema_version": 1, "cases": 3}', "lacks 'gradcheck_version'"),
    ],
)
def test_what_is_no_report(tmp_path, text, message):
    file = tmp_path / "report.json"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_report(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(UsageError, match="can't be read: No such file"):
        read_report(tmp_path / "none.json")


def test_any_part_that_is_missing_or_another_is_said(full, tmp_path):
    file = tmp_path / "report.json"
    content = json.loads(to_json(full))
    computed = {"worst_ratio", "relative_error", "code"}
    for key in content["cases"][0]["pairs"][0].keys() - computed:
        broken = json.loads(json.dumps(content))
        del broken["cases"][0]["pairs"][0][key]
        file.write_text(json.dumps(broken))
        with pytest.raises(UsageError, match=f"lacks '{key}'"):
            read_report(file)
    for odd in ("status", "max_abs_error", "worst"):
        broken = json.loads(json.dumps(content))
        broken["cases"][0]["pairs"][0][odd] = {"odd": 1}
        file.write_text(json.dumps(broken))
        with pytest.raises(UsageError):
            read_report(file)


def test_what_pictures_are_drawn_from_comes_back(report, tmp_path):
    """So that a page can be made of a JSON report, too."""
    pair = altered(report.cases[1].pairs[0], figure=tanh_figure())
    drawn = altered(report, cases=(altered(report.cases[1], pairs=(pair,)),))
    file = tmp_path / "report.json"
    file.write_text(to_json(drawn))
    assert read_report(file).cases[0].pairs[0].figure == pair.figure


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda figure: figure["map"].update(verdicts=["."]), "map.verdicts must have 6 x 6 cells"),
        (lambda figure: figure["map"]["share"][2].append(1.0), "map.share must have 6 x 6 cells"),
        (lambda figure: figure["map"].update(rows=[]), "map.analytic must have 0 x 6 cells"),
        (lambda figure: figure["ladder"]["above"].pop(), "ladder.above must have a number for each of 24"),
        (lambda figure: figure["ladder"]["steps"].__setitem__(0, 0), "ladder.steps must be larger than 0"),
    ],
)
def test_a_figure_that_contradicts_itself_is_refused_with_its_place(full, tmp_path, change, message):
    file = tmp_path / "report.json"
    pair = altered(full.cases[0].pairs[0], figure=tanh_figure())
    file.write_text(to_json(altered(full, cases=(altered(full.cases[0], pairs=(pair,)), *full.cases[1:]))))
    assert read_report(file).cases[0].pairs[0].figure == tanh_figure()
    content = json.loads(file.read_text())
    change(content["cases"][0]["pairs"][0]["figure"])
    file.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=rf"figure\.{message}"):
        read_report(file)
