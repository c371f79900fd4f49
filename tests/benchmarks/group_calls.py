"""calls: kinds of calls that took long in other projects' own tests, beside `tf.test.compute_gradient`."""

from __future__ import annotations

import time

from tests.benchmarks.measuring import shown_ratio, shown_seconds, table


def run(options):
    import tensorflow as tf

    from gradcheck_cli import check_function
    from tests.benchmarks.slow_calls import calls

    yield "## calls: processor time, the smallest of the rounds\n"
    rows = []
    for name, call in calls().items():
        if options.only and name not in options.only:
            continue
        tensors = [tf.constant(argument) for argument in call.arguments]
        report, taken = None, {"own": [], "rival": []}
        for _ in range(options.rounds or 1):
            began = time.process_time()
            report = check_function(call.function, *call.arguments, **call.options)
            taken["own"].append(time.process_time() - began)
            began = time.process_time()
            tf.test.compute_gradient(call.function, tensors)
            taken["rival"].append(time.process_time() - began)
        own, rival = map(min, taken.values())
        work, statuses = report.cases[0].ran.work, {pair.status.value for pair in report.cases[0].pairs}
        counts = f"{work.traces}, {work.calls}, {work.points}"
        parts = sorted(report.cases[0].ran.parts_s.items(), key=lambda item: -item[1])[:3]
        most = ", ".join(f"{part} {seconds:.1f}" for part, seconds in parts)
        rows.append(
            [name, *map(shown_seconds, (rival, own)), shown_ratio(own / rival), counts, most, *statuses]
        )
    yield table(["call", "TF", "gradcheck", "times", "traces, calls, points", "most of it", "verdict"], rows)
