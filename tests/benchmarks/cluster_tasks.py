"""Tasks for a Dask cluster that cost nothing themselves: what is left is what the cluster costs."""

from __future__ import annotations

from distributed import get_worker

from gradcheck_cli.features.cluster import dask_task
from gradcheck_cli.results import CaseError
from gradcheck_cli.running.run_loop import failed_case


def tiny(order, archive):
    """Answer as `check_document` does, with the same events and the same fields, and check nothing."""
    worker = get_worker()
    name = str(worker.name)
    dask_task.report_start(worker, order, name=name, host="here")
    for number in range(len(order.cases)):
        dask_task.report_start(worker, order, case=number, name=name)
    error = CaseError("internal", "not checked")
    return dask_task.Answer(
        worker.address, "", "-", tuple(failed_case(case, error, 0.0) for case in order.cases), {}
    )
