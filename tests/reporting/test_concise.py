"""One line for each thing found, for grep."""

from __future__ import annotations

from gradcheck_cli.features.exchange.concise import to_concise
from tests.support.flat_results import altered

CONCISE = """\
specs/huber.yaml:12: huber · wide · float32 · dy/dx: mismatched GC101 value: error=2.000e-03 allowed=1.0e-06 ratio=2.0e+03
specs/huber.yaml:12: huber · wide · float32 · check linearity: failed GC102 linearity: vjp(2 u) isn't 2 vjp(u)
specs/huber.yaml:12: huber · wide · float32 · precision: warned GC405 precision: tanh saturates
specs/broken.yaml:1: broken · case: undecided GC301 import: No module named 'numpi'.
"""  # noqa: E501 (as it prints)


def test_each_finding_is_one_line(report):
    text = to_concise(report)
    assert text.startswith(CONCISE)
    assert len(text.splitlines()) == 5
    assert "3 ops · 3 cases · 3 pairs" in text


def test_a_name_with_line_breaks_stays_on_its_line(report):
    case = altered(report.cases[1], op="two\nlines\x1b[31m")
    assert len(to_concise(altered(report, cases=(case,))).splitlines()) == 4
