"""What passes since a loop runs on is told, in float64, too."""

import gradcheck_cli
from gradcheck_cli.results import Status
from tests.rows.iterative import at_limit, settled
from tests.support.row import Row


def test_a_warning_says_that_a_loop_stops_before():
    row = Row("limit", at_limit(settled, 1e-7), None, {"x": {"shape": [3]}}, "undecidable")
    (case,) = gradcheck_cli.check(row.spec()).cases
    (pair,) = case.pairs
    assert (case.status, "where a loop runs on" in pair.numbers.decided_by) == (Status.PASSED, True)
    (warning,) = {text.partition(", and off")[0] for text in case.warnings}
    assert warning == "precision: dy/dx: right if the forward's loop runs on"
