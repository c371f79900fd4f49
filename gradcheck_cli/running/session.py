"""Checks cases in this process; whatever goes wrong in one becomes part of its result."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gradcheck_cli import clock, hooks
from gradcheck_cli.checking.check_case import check_case, keep_symmetric, say_where_symmetric
from gradcheck_cli.checking.ops.jacobian import PairKey
from gradcheck_cli.checking.ops.operation import Opening, Operation
from gradcheck_cli.checking.pairs.pair import is_skipped, label_of, pair_keys
from gradcheck_cli.checking.verdicts.pair_results import rule_of
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.clock import Work
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError, UsageError
from gradcheck_cli.hooks import CHECKS, extensions
from gradcheck_cli.results import (
    CaseError,
    CaseResult,
    CheckResult,
    CodeSeen,
    PairNumbers,
    PairResult,
    Status,
    case_status,
)
from gradcheck_cli.running.run_loop import Ended, Event, Progressed, Workers, blank_result, is_about_memory
from gradcheck_cli.spec.case import Case
from gradcheck_cli.spec.words import ON_REQUEST
from gradcheck_cli.visible import shorten

if TYPE_CHECKING:
    from gradcheck_cli.tensorflow_backend.openers import CaseOpener


def start_tensorflow(*, threads: int | None = None) -> str:
    """Import TensorFlow quietly, with this many threads if it isn't imported yet, and return its version."""
    from gradcheck_cli.tensorflow_backend import startup

    startup.start(threads=threads)
    return startup.version()


class InProcess(Workers):
    """Workers that run cases in this process, one after another."""

    def __init__(self, *, threads: int | None = None) -> None:
        """Start nothing yet; TensorFlow may use so many threads, by default one per core."""
        self._threads = threads

    def run(self, cases: Sequence[Case]) -> Iterator[Event]:
        """Run cases in order; see `Workers.run`."""
        self.tensorflow_version = start_tensorflow(threads=self._threads)
        for index, case in enumerate(cases):
            yield Progressed(index)
            yield Ended(index, run_case(case))


def run_case(case: Case) -> CaseResult:
    """Run one case; whatever goes wrong in it becomes part of its result."""
    return _make_result(case, _mutate if case.wanted.corruptions else check)


def _make_result(case: Case, look: Callable[[Case], Findings]) -> CaseResult:
    began = time.perf_counter()
    findings = Findings()
    error: CaseError | None = None
    work, seconds = Work(), dict[str, float]()
    try:
        with user_code(case), clock.count_work() as work, clock.split_time() as seconds:
            findings = look(case)
    except CaseSkippedError as skipped:
        findings = Findings(checks=(CheckResult(skipped.check, Status.SKIPPED, skipped.message),))
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # noqa: BLE001 (one case's failure must not end the run)
        error = _describe_error(failure)
    if (
        error is None
        and not findings.pairs
        and all(check.status is Status.PASSED for check in findings.checks)
    ):
        error = CaseError("pairs", _describe_nothing(case, findings))
    status = Status.ERROR if error is not None else case_status(findings.pairs, findings.checks)
    differs = any(check.name == "modes" and check.message for check in findings.checks)
    blank = blank_result(case, status, time.perf_counter() - began, differs=differs)
    return replace(
        blank,
        error=error,
        checks=findings.checks,
        pairs=findings.pairs,
        warnings=findings.warnings,
        mutants=findings.mutants,
        search=findings.search,
        how=replace(
            blank.how,
            numeric_dtype=findings.numeric_dtype,
            samples=findings.samples,
            chosen_points=findings.chosen_points,
            checks_off=tuple(sorted(case.judging.checks_off - ON_REQUEST)),
            held=findings.held,
            not_differentiated=findings.not_differentiated,
        ),
        ran=replace(blank.ran, work=work, parts_s=seconds),
        seen=CodeSeen(
            _find_source(case),
            dict(findings.gradients_seen),
            findings.custom_gradients,
            findings.branches,
            findings.sides_unknown,
        ),
    )


def _describe_nothing(case: Case, findings: Findings) -> str:
    """Say which side of a case without pairs has no floating-point tensor."""
    if any(tensor.is_differentiable for tensor in case.tensors):
        dtypes = [f"{output.output} ({output.dtype})" for output in findings.not_differentiated]
        side, remedy = "output", "Check what comes before it is cast."
    else:
        dtypes = [f"{tensor.name} ({tensor.dtype})" for tensor in case.tensors]
        side, remedy = "input that is differentiated", "Give one a dtype such as float64."
    return f"there is nothing to check: no floating-point {side}, only {', '.join(dtypes)}. {remedy}"


def _find_source(case: Case) -> str:
    """Return where the case's gradient is written; empty if that isn't known."""
    from gradcheck_cli.tensorflow_backend.registry import source_of

    with contextlib.suppress(Exception, SystemExit):  # the user's modules may raise any for an attribute
        return source_of(case.code)
    return ""


def list_pairs(case: Case) -> CaseResult:
    """Open a case and return its pairs, each as skipped: nothing is checked."""
    return _make_result(case, _list_pairs)


def check(case: Case, *, explains: bool = True) -> Findings:
    """Check an open case. The verdict of every command comes from here.

    Raises:
        CaseSkippedError: its mode or its device isn't available.
        CaseFailedError: it can't be checked.
    """
    from gradcheck_cli.tensorflow_backend.openers import opener_of
    from gradcheck_cli.tensorflow_backend.registry import note_gradients

    began = clock.now()
    with note_gradients() as log, clock.count_work() as work, _opened(case) as opener:
        opener.state.gradients = log
        before = case.running.modes[: case.running.modes.index(case.mode)]
        others = {mode: partial(opener_of, case, mode, opener) for mode in before}
        with opener.state.written.restore_at_end():
            points = opener.points
            findings = check_case(opener.case, opener, points, others)
            symmetric = keep_symmetric(case, findings)
            if symmetric is None:
                findings.custom_gradients = log.runs()
                spent = clock.now() - began
                judged = hooks.OpenCase(opener, points, findings, spent, work.points, explains)
                return hooks.after_verdict(judged, {"run_own_checks": run_own_checks})
    return say_where_symmetric(check(symmetric, explains=explains), case, symmetric)


def run_own_checks(judged: hooks.OpenCase) -> None:
    """Run the checks that other packages provide, at the first sample point.

    One that raises is an error, which fails the run.
    """
    from gradcheck_cli.tensorflow_backend import frames

    findings = judged.findings
    results = list(findings.checks)
    for name, function in {} if findings.first is None else extensions(CHECKS).items():
        try:
            message = function(judged.opener.case, findings.first)
        except Exception as error:  # noqa: BLE001 (another package's code; the other checks go on)
            failure = f"the check itself raised {frames.first_line(error)}"
            results.append(CheckResult(name, Status.ERROR, failure))
            continue
        status = Status.MISMATCHED if message else Status.PASSED
        results.append(CheckResult(name, status, shorten(str(message or ""))))
    judged.findings = replace(findings, checks=tuple(results))


def _mutate(case: Case) -> Findings:
    with _opened(case) as opener, opener.state.written.restore_at_end():
        arguments = opener.case, opener, opener.points, opener.case.wanted.corruptions
        return hooks.ask("run_corrupted", *arguments)  # type: ignore[no-any-return]


@contextlib.contextmanager
def _opened(case: Case) -> Iterator[CaseOpener]:
    """Make the opener of a case, for as long as the block runs on the case's device."""
    from gradcheck_cli.tensorflow_backend.openers import opener_of
    from gradcheck_cli.tensorflow_backend.startup import on_device

    with on_device(case.running.device):
        yield opener_of(case, case.mode)


@contextlib.contextmanager
def user_code(case: Case) -> Iterator[None]:
    """Make the spec's folder importable, and send the user's output to standard error.

    All code of a case runs inside this. Standard output carries results, which may be JSON for another
    program.
    """
    from gradcheck_cli.tensorflow_backend.startup import settings
    from gradcheck_cli.tensorflow_backend.users_code import importable

    # Where a function was given, this process has imported what it needs.
    with (
        settings(),
        hooks.behaviour().case() if case.code.given else importable(case.origin.folder),
        contextlib.redirect_stdout(sys.stderr),
    ):
        yield


def _describe_error(failure: BaseException) -> CaseError:
    """Say why a case couldn't be checked; the text isn't longer than a report has room for."""
    from gradcheck_cli.tensorflow_backend import frames

    error = CaseError("forward", f"the user's code raised {frames.type_name(failure)}, which hides all else.")
    with contextlib.suppress(Exception, SystemExit):  # the user's exception may raise any for an attribute
        error = _error_of(failure)
    return replace(error, message=shorten(error.message), traceback=tuple(map(shorten, error.traceback)))


def _error_of(failure: BaseException) -> CaseError:
    """Say why a case couldn't be checked."""
    from gradcheck_cli.tensorflow_backend import frames

    if isinstance(failure, CaseFailedError):
        kind = "memory" if is_about_memory(failure.message) else failure.kind
        return CaseError(kind, failure.message, failure.traceback)
    if isinstance(failure, MemoryError):
        return CaseError("memory", "ran out of memory; make the inputs smaller.")
    traceback = frames.user_frames(failure)
    if isinstance(failure, SystemExit):
        return CaseError("forward", f"the user's code called sys.exit({failure.code!r}).", traceback)
    what = frames.first_line(failure)
    if not isinstance(failure, Exception):  # neither gradcheck nor TensorFlow raises such
        return CaseError("forward", f"the user's code raised {what}, which isn't an Exception.", traceback)
    return CaseError(
        "internal",
        f"{what} (at {frames.own_place(failure)}). This is a fault of gradcheck's, or of something it "
        "relies on; please report it with the spec.",
        traceback,
    )


def open_pair(opener: CaseOpener, label: str, sample: int = 0) -> tuple[CaseOpener, Any, PairKey]:
    """Open the op that has a pair: the case's own for `dy/dx`, or its vjp for `d2y/dx.dx`.

    Returns:
        The opener of that op, the op, and the pair.

    Raises:
        UsageError: there is no such pair.
        CaseFailedError: the case can't be opened.
    """
    known_labels: list[str] = []
    for own, op in _open_ops(opener, sample):
        pairs = labels_of(op)
        if label in pairs:
            return own, op, pairs[label]
        known_labels += pairs
    raise UsageError(f"--pair: no pair {label!r}; there are {', '.join(known_labels) or 'none'}.")


def _open_ops(opener: CaseOpener, sample: int = 0) -> Iterator[tuple[CaseOpener, Any]]:
    """Yield the op and, if the case asks for second order, its vjp, each with its opener."""
    op = opener.open(Opening(sample))
    yield opener, op
    if opener.case.judging.second_order:
        vjp = opener.vjp(op)
        yield vjp, vjp.open(Opening(sample))


def labels_of(op: Operation) -> dict[str, PairKey]:
    """Return the pairs of an op by label."""
    return {label_of(op, pair): pair for pair in pair_keys(op)}


def _list_pairs(case: Case) -> Findings:
    pairs = []
    with _opened(case) as opener:
        for _, op in _open_ops(opener):
            for label, (output, at) in labels_of(op).items():
                size = 0 if is_skipped(rule_of(case, label)) else op.outputs[output].size * op.inputs[at].size
                names = op.outputs[output].name, op.inputs[at].name
                numbers = PairNumbers(elements=size)
                pairs.append(PairResult(label, *names, Status.SKIPPED, numbers=numbers))
    return Findings(tuple(pairs))
