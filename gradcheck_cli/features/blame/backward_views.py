"""What `trace` and `blame` do with a case: its backward pass op by op, and the op to blame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradcheck_cli.checking.ops.backward_pass import (
    PassTrace,
    explain_missing_gradient,
    summarise_pass,
    summarise_tensor,
)
from gradcheck_cli.checking.ops.opener import Opening
from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.checking.pairs.pair import pair_keys
from gradcheck_cli.errors import CaseFailedError, UsageError
from gradcheck_cli.features.blame.blaming import PathBlame, blame_path, compare_with_run, exit_code_of
from gradcheck_cli.running.pair_labels import open_pair
from gradcheck_cli.running.session import check, start_tensorflow, user_code
from gradcheck_cli.spec.case import Case
from gradcheck_cli.tensorflow_backend.graph.graph_operation import GraphOperation
from gradcheck_cli.tensorflow_backend.opening.openers import GraphOpener


def trace_case(case: Case, label: str | None = None, types: Sequence[str] = ()) -> tuple[PassTrace, ...]:
    """Trace the backward pass of each output with an upstream of ones, at the first sample point.

    Args:
        types: show only ops of these types; default: all except plain `Identity`.

    Raises:
        UsageError: there is no such pair, or no op of such a type.
        CaseFailedError: forward or gradient can't be evaluated.
    """
    start_tensorflow()
    with user_code(case):
        from gradcheck_cli.features.blame.walk.backward_walk import walk

        _, op, paths = _open_paths(case, label)
        traces, types_seen = [], set()
        for output, input_indices in paths:
            try:
                walked = walk(op, output, input_indices)
            except GradientFormError as error:
                raise CaseFailedError("gradient", error.message) from error
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

    Raises:
        UsageError: there is no such pair.
        CaseFailedError: forward or gradient can't be evaluated.
    """
    start_tensorflow()
    with user_code(case):
        from gradcheck_cli.tensorflow_backend.graph.sample_point import points

        opener, _, paths = _open_paths(case, label)
        samples = points(case)
        blamed = [blame_path(*path, samples, opener) for path in paths]
        if exit_code_of(blamed):
            return tuple(blamed)
        findings = check(case, explains=False)
        marked = compare_with_run(blamed, findings, label)
        return tuple(
            _check_again(path_blame, opener, path, samples) if path_blame.blame.run else path_blame
            for path_blame, path in zip(marked, paths, strict=True)
        )


def _check_again(
    blamed: PathBlame, opener: GraphOpener, path: tuple[int, Sequence[int]], samples: Sequence[int]
) -> PathBlame:
    """Check a path again whose ops are all right although a run fails; keep a result that names an op.

    A gradient that is right in float64 may be wrong in the declared dtype, or only for other upstreams.
    """
    again = blame_path(*path, samples, opener, after_run=True)
    return again if again.blame.named else blamed


def _open_paths(
    case: Case, label: str | None
) -> tuple[GraphOpener, GraphOperation, list[tuple[int, list[int]]]]:
    """Return the requested output and inputs, by index, with their op and its opener."""
    from gradcheck_cli.tensorflow_backend.opening.openers import opener_of

    opener = opener_of(case, "graph")
    if label is not None:
        opened_pair = open_pair(opener, label)
        output, input_index = opened_pair.pair
        return opened_pair.opener, opened_pair.op, [(output, [input_index])]
    op = opener.open(Opening())
    pairs = pair_keys(op)
    if not pairs:
        raise CaseFailedError(
            "pairs",
            "there is nothing to differentiate: no floating-point output, or no floating-point input.",
        )
    outputs = dict.fromkeys(output for output, _ in pairs)
    return (
        opener,
        op,
        [
            (output, [input_index for pair_output, input_index in pairs if pair_output == output])
            for output in outputs
        ],
    )
