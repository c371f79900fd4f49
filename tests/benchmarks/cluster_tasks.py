"""Tasks for a Dask cluster that cost nothing themselves: what is left is what the cluster costs."""

from __future__ import annotations

import json

from distributed import get_worker

from gradcheck_cli.features.cluster import dask_task, wire
from gradcheck_cli.results import CaseError
from gradcheck_cli.running.failed_case import failed_case


def tiny(order, archive):
    """Answer as `check_document` does, with the same events and the same fields, and check nothing."""
    asked = dask_task.Order(**json.loads(order))
    there = {"worker": str(get_worker().name), "host": "here"}
    dask_task.report_start(get_worker(), asked, {"name": there["worker"], "host": "here"})
    cases = wire.loads(asked.cases)
    for number in range(len(cases)):
        dask_task.report_start(get_worker(), asked, {"case": number, "name": there["worker"]})
    results = [failed_case(case, CaseError("internal", "not checked"), 0.0) for case in cases]
    return json.dumps({**there, "tensorflow": "-", "results": wire.dumps(results), "printed": {}}).encode()
