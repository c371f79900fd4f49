"""What a run makes of the events that workers send, in whatever order; the workers are a stand-in."""

import os
import signal
import sys
from dataclasses import replace

import pytest

from gradcheck_cli.results import ZERO_SIZE, CaseError, CaseResult, Status
from gradcheck_cli.running.run_loop import Ended, Progressed, Stopper, Waited, failed_case, run_in_workers
from gradcheck_cli.spec.load import load_mapping
from tests.support.flat_results import make_case, make_pair

(CASE,) = load_mapping({"op": "op", "forward": "m:f", "inputs": {"x": {"shape": [2]}}})
CASES = [replace(CASE, op=f"op{number}") for number in range(4)]


class Scripted:
    """Workers that send what they were told to send; a function among it is called."""

    tensorflow_version = "2.0"

    def __init__(self, *script):
        self.script = script
        self.closed = 0

    def run(self, cases):
        for step in self.script:
            if callable(step):
                event = step()
                if isinstance(event, Waited | Progressed):
                    yield event
            elif isinstance(step, tuple):
                yield Progressed(step[0])
            elif isinstance(step, CaseResult):
                yield Ended(next(i for i, case in enumerate(cases) if case.name == step.case), step)
            else:
                yield Ended(step, failed_case(cases[step], CaseError("forward", "no"), 0.1))

    def close(self):
        self.closed += 1


def run(*script):
    workers, told, started = Scripted(*script), [], []
    report = run_in_workers(
        workers,
        CASES,
        on_case=lambda result: told.append(result.op),
        on_progress=lambda case, share: started.append(case.op),
    )
    assert workers.closed == 1
    assert [result.op for result in report.cases] == sorted(told)
    return report, told, started


@pytest.fixture(autouse=True)
def heeds_interrupts():
    """Handle Ctrl-C even if what started the tests ignores it, as `nohup` does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_results_come_in_the_order_of_the_cases():
    report, told, started = run((2,), 2, (0,), (3,), 3, 0, (1,), 1)
    assert told == ["op0", "op1", "op2", "op3"]
    assert started == ["op2", "op0", "op3", "op1"]
    assert (report.seed, report.tensorflow_version, report.interrupted) == (0, "2.0", False)


def test_a_result_is_told_as_soon_as_those_before_it_are_there():
    counts = []
    seen = []
    steps = [(number, lambda: counts.append(len(seen))) for number in (1, 0, 2, 3)]
    workers = Scripted(*(step for pair in steps for step in pair))
    run_in_workers(workers, CASES, on_case=seen.append)
    assert counts == [0, 2, 3, 4]


def test_an_interrupted_run_tells_all_that_is_done():
    report, told, _ = run(0, 2, interrupt, 1)
    assert told == ["op0", "op2"]
    assert report.interrupted
    assert report.exit_code == 130


def test_an_interrupt_never_cuts_a_result_in_two():
    told = []

    def tell(result):
        interrupt()
        told.append(result.op)

    report = run_in_workers(Scripted(1, 0, 2), CASES, on_case=tell)
    # Those that were next in turn as the interrupt came are still told with the one that it hit.
    assert told == ["op0", "op1"]
    assert report.interrupted


def test_a_run_is_stopped_at_a_failure_and_tells_what_is_done():
    stopper = Stopper(lambda result: result.op == "op1", max_failures=1)
    told = []
    workers = Scripted(0, 2, 1, 3)
    report = run_in_workers(workers, CASES, on_case=lambda result: told.append(result.op), stopper=stopper)
    assert told == ["op0", "op1", "op2"]
    assert report.unchecked == ("stopped after 1 failed case: 1 of 4 cases weren't checked",)
    assert workers.closed == 1
    assert not report.interrupted


class InterruptsAsItIsDestroyed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_that_comes_in_a_destructor_is_not_lost(monkeypatch):
    lost = []
    monkeypatch.setattr(sys, "unraisablehook", lambda problem: lost.append(problem.exc_type))

    def destroy():
        InterruptsAsItIsDestroyed()
        return Waited()

    report, told, _ = run(0, destroy, 1)
    assert lost == [KeyboardInterrupt]  # Python tells of it, and goes on
    assert report.interrupted
    assert told == ["op0"]


@pytest.mark.parametrize("is_shard", [False, True])  # of shards `merge` judges the pairs
@pytest.mark.parametrize("elements", [(0, 4), (4, 0), (0, 0)])
def test_a_pair_without_elements_waits_for_the_ops_other_cases(elements, is_shard):
    def result_of(name, count):
        note = "" if count else ZERO_SIZE
        pair = make_pair("dy/dx", "y", "x", Status.PASSED, elements=count, note=note)
        return make_case("op", name, CASE.spec, status=Status.PASSED, pairs=(pair,))

    results = [result_of(name, count) for name, count in zip("ab", elements, strict=True)]
    cases, told = [replace(CASE, name=name) for name in "ab"], []
    report = run_in_workers(Scripted(*results), cases, on_case=told.append, is_shard=is_shard)
    is_fine = any(elements) or is_shard
    assert [case.status for case in told] == [Status.PASSED if is_fine else Status.INCONCLUSIVE] * 2
    assert report.exit_code == (0 if is_fine else 3)
