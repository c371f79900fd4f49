"""How changes since a baseline are listed."""

from gradcheck_cli.features.baseline.changes_text import baseline_lines
from gradcheck_cli.gate import BaselineFinding, Change
from gradcheck_cli.reporting.terminal import layout


def loosened(pair, case="default"):
    return BaselineFinding(
        "huber", case, "float64", "graph", pair, Change.LOOSENED, "rtol 1.0e-06 -> 1.0e-03"
    )


def test_a_tolerance_that_is_loosened_once_is_one_line():
    found = [loosened("dy/da"), loosened("dy/db"), loosened("dy/da", "wide")]
    text = layout.plain(baseline_lines(found, 80))
    assert text.startswith("  LOOSENED GC502  huber · dy/da and 2 pairs more\n    rtol 1.0e-06 -> 1.0e-03\n")
    assert text.count("LOOSENED") == 1
    assert "since the baseline: 3 loosened" in text
    assert "`gradcheck run --update-baseline FILE`" in " ".join(text.split())
