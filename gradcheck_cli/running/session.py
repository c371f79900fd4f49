"""Run cases in this process, one after another, and gather their results into a report."""

from __future__ import annotations

import contextlib
import platform
import sys
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import gradcheck_cli
from gradcheck_cli.checking.check_case import check_case
from gradcheck_cli.checking.examine import Findings
from gradcheck_cli.checking.mutation.mutate_case import mutate
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.results import CaseError, CaseResult, CheckResult, Report, Status, Work, case_status
from gradcheck_cli.running.chosen_points import look_at_sides
from gradcheck_cli.running.failed_case import reproduce
from gradcheck_cli.running.own_checks import own_checks
from gradcheck_cli.running.pair_labels import listed_pairs
from gradcheck_cli.running.processes.exit_errors import tells_of_memory
from gradcheck_cli.running.stopping import Stopper
from gradcheck_cli.running.surroundings import surroundings
from gradcheck_cli.running.views.blaming import with_blame
from gradcheck_cli.running.views.drawing import with_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gradcheck_cli.spec.case import Case


def start_tensorflow(*, threads: int | None = None) -> str:
    """Import TensorFlow quietly, to use so many threads if it is new here, and return its version."""
    from gradcheck_cli.tensorflow_backend import startup

    startup.start(threads=threads)
    return startup.version()


def run_cases(  # noqa: PLR0913 (who is told of what)
    cases: Sequence[Case],
    *,
    seed: int | None = None,
    on_case: Callable[[CaseResult], None] | None = None,
    on_start: Callable[[Case], None] | None = None,
    threads: int | None = None,
    stopper: Stopper | None = None,
) -> Report:
    """Run cases in order.

    Args:
        cases: what to run.
        seed: the seed that the command line gave, for the report.
        on_case: called with each result as it comes.
        on_start: called as a case begins.
        threads: how many TensorFlow may take; default as many as cores.
        stopper: asked before each case whether to end the run now.

    Returns:
        The report; `interrupted` if Ctrl-C ended it early, with what was done.
    """
    began = time.perf_counter()
    stopper = stopper or Stopper.never()
    results: list[CaseResult] = []
    interrupted = False
    tensorflow = ""
    try:
        tensorflow = start_tensorflow(threads=threads)
        for case in cases:
            if stopper.is_time():
                break
            if on_start is not None:
                on_start(case)
            result = run_case(case)
            results.append(result)
            stopper.saw(result)
            if on_case is not None:
                on_case(result)
    except KeyboardInterrupt:
        interrupted = True
    return Report(
        gradcheck_version=gradcheck_cli.__version__,
        tensorflow_version=tensorflow,
        python_version=platform.python_version(),
        seed=seed if seed is not None else next((case.seed for case in cases), 0),
        cases=tuple(results),
        duration_s=time.perf_counter() - began,
        interrupted=interrupted,
        unchecked=() if interrupted else stopper.unchecked(len(cases), len(results)),
        **surroundings(),
    )


def run_case(case: Case) -> CaseResult:
    """Run one case; whatever goes wrong in it becomes part of its result."""
    return _result(case, _mutate if case.corruptions else check)


def _result(case: Case, look: Callable[[Case], Findings]) -> CaseResult:
    from gradcheck_cli.tensorflow_backend import work_counts

    began = time.perf_counter()
    findings = Findings()
    error: CaseError | None = None
    done = Work()
    try:
        with users_code(case), work_counts.counted() as done:
            findings = look(case)
    except CaseSkippedError as skipped:
        findings = Findings(checks=(CheckResult(skipped.check, Status.SKIPPED, skipped.message),))
    except CaseFailedError as failure:
        kind = "memory" if tells_of_memory(failure.message) else failure.kind
        error = CaseError(kind, failure.message, failure.traceback)
    except KeyboardInterrupt:
        raise
    except MemoryError:
        error = CaseError("memory", "ran out of memory; make the inputs smaller.")
    except BaseException as failure:  # noqa: BLE001 (one case's failure must not end the run)
        error = _unforeseen(failure)
    status = Status.ERROR if error is not None else case_status(findings.pairs, findings.checks)
    if (
        error is None
        and not findings.pairs
        and all(check.status is Status.PASSED for check in findings.checks)
    ):
        error = CaseError(
            "pairs", "there is nothing to check: no floating-point output, or no floating-point input."
        )
        status = Status.ERROR
    return CaseResult(
        op=case.op,
        case=case.name,
        spec=case.spec,
        mode=case.mode,
        dtype=case.dtype,
        status=status,
        duration_s=time.perf_counter() - began,
        reproduce=reproduce(case),
        numeric_dtype=findings.numeric_dtype,
        reason=case.reason,
        error=error,
        checks=findings.checks,
        pairs=findings.pairs,
        warnings=findings.warnings,
        not_differentiated=findings.not_differentiated,
        checks_off=tuple(sorted(case.checks_off)),
        samples=case.samples if case.is_generated else 1,
        gradients_seen=dict(findings.gradients_seen),
        held=findings.held,
        mutants=findings.mutants,
        work=done,
        custom_gradients=findings.custom_gradients,
        branches=findings.branches,
        chosen_points=findings.chosen_points,
    )


def list_pairs(case: Case) -> CaseResult:
    """Open a case and return its pairs, each as skipped: nothing is checked."""
    return _result(case, lambda case: Findings(listed_pairs(case)))


def check(case: Case, *, explains: bool = True) -> Findings:
    """Check an open case: what every command's verdict comes from.

    Args:
        case: the case.
        explains: whether to look for the op to blame for a mismatch.

    Raises:
        CaseSkippedError: it can't have its mode, or its device.
        CaseFailedError: it can't be checked.
    """
    from gradcheck_cli.tensorflow_backend.devices import on_device
    from gradcheck_cli.tensorflow_backend.graph.sample_point import points
    from gradcheck_cli.tensorflow_backend.opening.openers import opener_of
    from gradcheck_cli.tensorflow_backend.private.private_sites import GradientLog, sites_noted

    began = time.perf_counter()
    log = GradientLog()
    with on_device(case.device), sites_noted(log):
        opener = opener_of(case, case.mode)
        opener.state.gradients = log
        before = case.modes[: case.modes.index(case.mode)]
        others = {mode: partial(opener_of, case, mode, opener) for mode in before}
        with opener.state.written.restored():
            findings = check_case(opener.case, opener, points(case), others)
            findings.custom_gradients = log.runs()
            spent = time.perf_counter() - began
            if case.mode == "graph" and explains:  # a mode's ops, one by one, are those of a graph
                findings = with_blame(opener.case, findings, opener, spent)
            if findings.first is not None:
                own = own_checks(opener.case, findings.first)
                findings = replace(findings, checks=(*findings.checks, *own))
            if explains:
                look_at_sides(opener, points(case), findings, spent)
            return with_figures(findings, opener) if case.drawn else findings


def _mutate(case: Case) -> Findings:
    from gradcheck_cli.tensorflow_backend.devices import on_device
    from gradcheck_cli.tensorflow_backend.graph.sample_point import points
    from gradcheck_cli.tensorflow_backend.opening.openers import opener_of

    with on_device(case.device):
        opener = opener_of(case, case.mode)
        with opener.state.written.restored():
            return mutate(opener.case, opener, points(case), case.corruptions)


@contextlib.contextmanager
def users_code(case: Case) -> Iterator[None]:
    """Make the spec's folder importable, and send what the user's code prints to standard error.

    Everything that runs a case's code is inside this.

    Standard output carries results, which may be JSON for another program.
    """
    from gradcheck_cli.tensorflow_backend.binding.loading import importable
    from gradcheck_cli.tensorflow_backend.startup import settings

    with settings(), importable(case.folder), contextlib.redirect_stdout(sys.stderr):
        yield


def _unforeseen(failure: BaseException) -> CaseError:
    from gradcheck_cli.tensorflow_backend import frames

    if isinstance(failure, SystemExit):
        return CaseError(
            "forward", f"the user's code called sys.exit({failure.code!r}).", frames.user_frames(failure)
        )
    if not isinstance(failure, Exception):  # nothing of ours or TensorFlow's raises such
        return CaseError(
            "forward",
            f"the user's code raised {frames.first_line(failure)}, which is no Exception.",
            frames.user_frames(failure),
        )
    place = frames.own_place(failure)
    return CaseError(
        "internal",
        f"{frames.first_line(failure)} (at {place}). This is a fault of gradcheck's, or of something it "
        "relies on; please report it with the spec.",
        frames.user_frames(failure),
    )
