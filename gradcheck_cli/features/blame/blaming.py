"""What `trace` and `blame` do with a case: its backward pass op by op, and the op to blame.

Blame also runs by itself after a mismatch, in a case that is open.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.checking.ops.operation import GradientFormError, OpenedOperation, Opening
from gradcheck_cli.checking.pairs.pair import label_of, pair_keys
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import CaseFailedError, UsageError
from gradcheck_cli.features.blame.backward_pass import (
    PassTrace,
    explain_missing_gradient,
    summarise_pass,
    summarise_tensor,
)
from gradcheck_cli.features.blame.path_blame import (
    Blame,
    PathBlame,
    exit_code_of,
    find_blame,
    sentence,
)
from gradcheck_cli.hooks import OpenCase
from gradcheck_cli.results import FAILING, UNDECIDED, Status
from gradcheck_cli.running.session import check, open_pair, user_code
from gradcheck_cli.spec.case import Case
from gradcheck_cli.spec.words import BINDINGS
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.backward_walk import Walk
from gradcheck_cli.tensorflow_backend.graph_view import ForwardGraph, UnheldStop
from gradcheck_cli.tensorflow_backend.openers import CaseOpener, opener_of

# If a case has more mismatched pairs, only the first ones are examined: each takes its own backward pass.
MOST_PAIRS = 4
# Seconds of processor time after which no further pair is examined: a case has a time limit, and its
# explanation must not cost it the verdict.
LONG = 15.0


def blame_path(
    output: int,
    input_indices: Sequence[int],
    samples: Sequence[int],
    opener: CaseOpener,
    *,
    after_run: bool = False,
) -> PathBlame:
    """Find the op to blame between an output and some inputs.

    Args:
        samples: indices of the sample points; the search ends at the first at which an op is named.
        after_run: check the ops in the declared dtypes, not in float64, and each of them alone: a run fails.

    Raises:
        CaseFailedError: forward or gradient can't be evaluated.
    """
    best: PathBlame | None = None
    for sample in samples:
        blame, op = _blame_at(sample, output, input_indices, opener, after_run=after_run)
        names = tuple(op.inputs[input_index].name for input_index in input_indices)
        here = PathBlame(op.outputs[output].name, names, sample, blame)
        if best is None or _RANK[blame.status] > _RANK[best.blame.status]:
            best = here
        if blame.named or (blame.reason and not blame.ops):
            break
    if best is None:
        raise ValueError("samples: expected at least one")
    return best


def _blame_at(
    sample: int, output: int, input_indices: Sequence[int], opener: CaseOpener, *, after_run: bool
) -> tuple[Blame, OpenedOperation]:
    """Find the op to blame at one sample point."""
    with opener.at(sample):
        op = opener.open(Opening(sample))
        reason = _explain_no_truth(opener.case, op.facts.random_types) or _describe_cut(
            op, output, input_indices
        )
        if reason:
            return Blame((), None, reason), op
        wide = None if after_run else opener.in_float64(op)
        try:
            blame = find_blame(Walk.of(wide or op, output, input_indices), each_alone=after_run)
        except GradientFormError as error:
            raise CaseFailedError("gradient", error.message) from error
        if opener.case.judging.freeze is False and blame.agrees is False and not blame.named:
            blame = replace(blame, reason=_describe_unheld(op, output, input_indices))
        return blame, op


def compare_with_run(
    paths: Sequence[PathBlame], findings: Findings, label: str | None = None
) -> tuple[PathBlame, ...]:
    """Mark each path as undecided if its ops are all right but a run fails.

    If one pair was requested, only its verdict and the case's checks count.
    """
    checks = [f"check {check.name}: {check.message}" for check in findings.checks if check.status in _FAILS]
    marked = []
    for path in paths:
        failures = [
            f"{pair.label} is {pair.status}" + (f" ({details})" if details else "")
            for pair in findings.pairs
            for details in [pair.message or "; ".join(pair.cause.diagnosis)]
            if pair.status in _FAILS
            and (pair.label == label if label else pair.order > 1 or pair.output == path.output)
        ]
        marked.append(replace(path, blame=replace(path.blame, run="; ".join([*failures, *checks]))))
    return tuple(marked)


_FAILS = FAILING | UNDECIDED


_RANK = {Status.PASSED: 0, Status.INCONCLUSIVE: 1, Status.MISMATCHED: 2}


def _explain_no_truth(case: Case, random_types: Sequence[str]) -> str:
    """Say why differences of the forward aren't what its gradients should be; empty if they are."""
    if case.reference is not None:
        return (
            "the gradient is meant to be that of the spec's 'reference', not of the forward: there is "
            "nothing to compare the forward's ops with"
        )
    if random_types:
        return f"the forward draws anew at each call ({', '.join(random_types)})"
    return ""


def explain_mismatches(judged: OpenCase) -> None:
    """For a forward of several ops, add to each mismatched pair the op that is to blame.

    Ops are examined one by one in a graph only. The opener is that of the check, so that the results of a
    factory and the draws stay the same.
    """
    opener, findings = judged.opener, judged.findings
    case: Case = opener.case
    if case.mode != "graph":
        return
    # A raw op, or a forward under one custom gradient, is a single op: the pair says everything.
    is_single = BINDINGS[case.code.binding].is_one_op or case.code.forward is None
    orders = (2,) if is_single or case.reference is not None else (1, 2)
    wrong = [
        pair.label
        for pair in findings.pairs
        if pair.status is Status.MISMATCHED and pair.numbers.elements and pair.order in orders
    ]
    began, lines = clock.now(), dict[str, str]()
    for label in wrong[:MOST_PAIRS]:
        if judged.spent + clock.now() - began <= LONG:
            wrong_at = findings.judged.get(label)
            lines[label] = _blame_line(label, opener, wrong_at.points if wrong_at else judged.points)
        elif not _is_single(findings.first, label):
            lines[label] = f"not looked for, since this takes long: {_blame_command(case, label)}"
    findings.pairs = tuple(
        pair.explained(*pair.cause.diagnosis, f"blame: {line}") if (line := lines.get(pair.label)) else pair
        for pair in findings.pairs
    )


def _is_single(op: Any, label: str) -> bool:
    """Whether a pair's path is a single op, so that the pair says everything."""
    pair = next((pair for pair in pair_keys(op) if label_of(op, pair) == label), None) if op else None
    if pair is None:  # of second order
        return False
    try:
        return len(Walk.of(op, pair[0], [pair[1]]).path) <= 1
    except Exception:  # noqa: BLE001 (a path that can't be followed is no single op)
        return False


def _blame_command(case: Case, label: str) -> str:
    """Return the command that finds the op to blame."""
    if case.origin.path.startswith("<"):
        return "write the spec to a file, and run 'gradcheck blame' of it"
    words = ["gradcheck", "blame", case.origin.path, "--op", case.op, "--case", case.name, "--pair", label]
    words += ["--seed", str(case.seed)]
    return " ".join(shlex.quote(word) for word in words)


def _blame_line(label: str, opener: CaseOpener, points: Sequence[int]) -> str:
    """Return the line for a pair; empty if its path is a single op, and that no sampler."""
    try:
        opener, op, (output, input_index) = open_pair(opener, label)
        cut_off = _describe_cut(op, output, [input_index])
        if cut_off:
            return cut_off
        blame = blame_path(output, [input_index], points, opener).blame
        if blame.status is Status.PASSED and len(blame.ops) > 1:  # along these directions, in float64
            again = blame_path(output, [input_index], points, opener, after_run=True).blame
            blame = again if again.named else replace(blame, agrees=False)
    except CaseFailedError as error:
        return f"no op can be named: {error.message}"
    except Exception as error:  # noqa: BLE001 (an explanation that fails must not cost the verdict)
        return f"no op can be named: {frames.first_line(error)}"
    tells_more = any(op.place.draws or op.is_form for op in blame.named)
    return sentence(blame) if len(blame.ops) > 1 or tells_more else ""


def _stops(op: OpenedOperation, output: int, input_indices: Sequence[int]) -> list[UnheldStop]:
    """Return the `stop_gradient`s on a path that aren't held."""
    graph = ForwardGraph(op)
    return [stop for input_index in input_indices for stop in graph.unheld_stops(output, input_index)]


def _describe_unheld(op: OpenedOperation, output: int, input_indices: Sequence[int]) -> str:
    """Name the `stop_gradient`s on a path, none of which the spec lets hold; empty where there is none."""
    places = ", ".join(dict.fromkeys(stop.place for stop in _stops(op, output, input_indices)))
    return places and (
        f"backpropagation takes what the stop_gradient at {places} stops for a constant, and with 'freeze: "
        "false' it moves: say 'freeze: true' if the stop is meant, else leave the stop out"
    )


def _describe_cut(op: OpenedOperation, output: int, input_indices: Sequence[int]) -> str:
    """Name the `stop_gradient`s because of which the gradient is right but its own gradient is wrong.

    Empty for a plain forward, and where there are none.
    """
    stops = _stops(op, output, input_indices) if op.outputs[output].of else []
    if not stops:
        return ""
    places = ", ".join(dict.fromkeys(stop.place for stop in stops))
    if all(stop.is_of_forward for stop in stops):
        return (
            f"a stop_gradient of the forward at {places} lets a part of it count as constant: the gradient "
            "stays the same, but not the gradient's own gradient; leave it out"
        )
    return (
        f"a stop_gradient inside the custom gradient at {places} lets the gradient count as constant when it "
        "is differentiated itself; leave it out"
    )


def trace_case(case: Case, label: str | None = None, types: Sequence[str] = ()) -> tuple[PassTrace, ...]:
    """Trace the backward pass of each output with an upstream of ones, at the first sample point.

    Args:
        types: show only ops of these types; default: all except plain `Identity`.

    Raises:
        UsageError: there is no such pair, or no op of such a type.
        CaseFailedError: forward or gradient can't be evaluated.
    """
    with user_code(case):
        _, op, paths = _open_paths(case, label)
        traces, types_seen = [], set()
        for output, input_indices in paths:
            try:
                walked = Walk.of(op, output, input_indices)
            except GradientFormError as error:
                raise CaseFailedError("gradient", error.message) from error
            for message in filter(None, map(walked.malformed, walked.steps)):
                raise CaseFailedError("gradient", message)
            passes, gradients = walked.passes(np.ones(op.outputs[output].shape))
            ops = summarise_pass(passes)
            types_seen |= {summary.place.type for summary in ops}
            shown = tuple(
                summary
                for summary, step in zip(ops, walked.steps, strict=True)
                if (summary.place.type in types if types else not step.passes_on or summary.marks)
            )
            traces.append(
                PassTrace(
                    op.outputs[output].name,
                    tuple(op.inputs[input_index].name for input_index in input_indices),
                    shown,
                    tuple(summarise_tensor(gradient) for gradient in gradients),
                    len(ops) - len(shown) if not types else 0,
                    tuple(
                        explain_missing_gradient(
                            gradient, ops, walked.ends(input_index) if gradient is None else ()
                        )
                        for input_index, gradient in zip(input_indices, gradients, strict=True)
                    ),
                )
            )
    missing = [name for name in types if name not in types_seen]
    if missing:
        raise UsageError(
            f"--type: no op of type {', '.join(missing)} on the way; there are "
            f"{', '.join(sorted(types_seen)) or 'none'}."
        )
    return tuple(traces)


def blame_case(case: Case, label: str | None = None) -> tuple[PathBlame, ...]:
    """Find the op to blame, at every sample point; if there is none, compare that with a run's findings.

    A path is checked again if its ops are all right although a run fails: a gradient that is right in float64
    may be wrong in the declared dtype, or only for other upstreams. Only a result that names an op is kept.

    Raises:
        UsageError: there is no such pair.
        CaseFailedError: forward or gradient can't be evaluated.
    """
    with user_code(case):
        opener, _, paths = _open_paths(case, label)
        samples = opener.points
        blamed = tuple(blame_path(*path, samples, opener) for path in paths)
        if exit_code_of(blamed):
            return blamed
        marked = list(compare_with_run(blamed, check(case, explains=False), label))
        for index, path in enumerate(paths):
            if marked[index].blame.run:
                again = blame_path(*path, samples, opener, after_run=True)
                marked[index] = again if again.blame.named else marked[index]
        return tuple(marked)


def _open_paths(
    case: Case, label: str | None
) -> tuple[CaseOpener, OpenedOperation, list[tuple[int, list[int]]]]:
    """Return the requested output and inputs, by index, with their op and its opener."""
    opener = opener_of(case, "graph")
    if label is not None:
        opener, op, (output, input_index) = open_pair(opener, label)
        return opener, op, [(output, [input_index])]
    op, paths = opener.open(Opening()), dict[int, list[int]]()
    for output, input_index in pair_keys(op):
        paths.setdefault(output, []).append(input_index)
    if not paths:
        raise CaseFailedError(
            "pairs",
            "there is nothing to differentiate: no floating-point output, or no floating-point input.",
        )
    return opener, op, list(paths.items())
