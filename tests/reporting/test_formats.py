"""Each format renders a report; the concise one has a line for each thing found, for grep."""

from pathlib import Path

import pytest

from gradcheck_cli.features.exchange.concise import to_concise
from gradcheck_cli.reporting.formats import FORMATS, TO_FILES, render
from tests.support.flat_results import altered

CONCISE = """\
specs/huber.yaml:12: huber · wide · float32 · dy/dx: mismatched GC101 value: error=2.000e-03 allowed=1.0e-06 ratio=2.0e+03
specs/huber.yaml:12: huber · wide · float32 · check linearity: failed GC102 linearity: vjp(2 u) isn't 2 vjp(u)
specs/huber.yaml:12: huber · wide · float32 · precision: warned GC405 precision: tanh saturates
specs/broken.yaml:1: broken · case: undecided GC301 import: No module named 'numpi'.
"""  # noqa: E501 (as it prints)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_renders_a_report(kind, report):
    assert "huber" in render(kind, report, Path.cwd())


@pytest.mark.feature  # formats for other programs
def test_an_unknown_format_is_refused_and_what_a_terminal_shows_goes_to_no_file(report):
    with pytest.raises(ValueError, match="no format 'pdf'; there are json, junit, "):
        render("pdf", report, Path.cwd())
    assert set(FORMATS) - set(TO_FILES) == {"github", "concise"}


def test_each_finding_is_one_line(report):
    text = to_concise(report)
    assert text.startswith(CONCISE)
    assert len(text.splitlines()) == 5
    assert "3 ops · 3 cases · 3 pairs" in text
    broken_name = altered(report.cases[1], op="two\nlines\x1b[31m")
    assert len(to_concise(altered(report, cases=(broken_name,))).splitlines()) == 4
