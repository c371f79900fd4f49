# ruff: noqa: T201 (a script: its answer is what it prints)
"""Check one op of N elements in this fresh process, and print as JSON what it took.

`growth_child.py OP N METHOD`, which may be empty: the method by default.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from gradcheck_cli.running.limits import default_memory
from gradcheck_cli.running.session import run_case, start_tensorflow
from gradcheck_cli.spec.load import load_mapping

COLUMNS = 8  # of the matmul whose rows grow: its other input stays small
DOUBLE = 8  # bytes
SMALL = 64  # elements of the verdict that warms up: what is done only once isn't what grows


def inputs_of(op, elements):
    """Return the spec's inputs, and the elements of inputs and outputs together."""
    if op == "rows_matmul":
        rows = max(1, elements // COLUMNS)
        given = {"x": {"shape": [rows, COLUMNS]}, "w": {"shape": [COLUMNS, COLUMNS]}}
        return given, 2 * rows * COLUMNS + COLUMNS**2
    # No ties, and neighbours a whole unit apart: no step reorders them.
    apart = {"uniform": {"low": 0, "high": 2 * elements}, "min_gap": 1}
    source = apart if op == "sort" else {}
    return {"x": {"shape": [elements], **source}}, 2 * elements


def case_of(op, elements, method):
    """Return the case, and the bytes of one copy of its inputs and outputs."""
    inputs, total = inputs_of(op, elements)
    spec = {
        "op": op,
        "forward": f"tests.benchmarks.benchmark_functions:{op}",
        "inputs": inputs,
        "samples": 1,
        **({"method": method} if method else {}),
    }
    return load_mapping(spec)[0], total * DOUBLE


def _status_bytes(field):
    """Read VmRSS or VmHWM, the present and the highest resident size."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _forget_the_peak():
    """Let the highest resident size start anew from the present one: importing peaks on its own."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def main():
    """Measure, and print."""
    op, elements, method = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    limit = default_memory()
    if limit is not None:  # a verdict that eats all there is should end itself, and nobody else
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    start_tensorflow(threads=1)
    run_case(case_of(op, SMALL, method)[0])
    case, copy = case_of(op, elements, method)
    before = _status_bytes("VmRSS")
    _forget_the_peak()
    began = time.perf_counter()
    result = run_case(case)
    seconds = time.perf_counter() - began
    print(
        json.dumps(
            {
                "seconds": seconds,
                "status": str(result.status),
                "error": result.error.message if result.error else "",
                "methods": sorted({pair.judged_by.method for pair in result.pairs}),
                "grown": _status_bytes("VmHWM") - before,
                "copy": copy,
            }
        )
    )


if __name__ == "__main__":
    main()
