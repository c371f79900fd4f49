"""What `trace` and `blame` do with a case: its backward pass op by op, and the op that is to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.backward import PassTrace, summary_of, traced
from gradcheck_cli.checking.operation import GradientFormError
from gradcheck_cli.checking.sample import pairs_of
from gradcheck_cli.errors import CaseFailedError, UsageError
from gradcheck_cli.running.blaming import PathBlame, blame_path
from gradcheck_cli.running.pairs import open_pair
from gradcheck_cli.running.session import start_tensorflow, users_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.graph_operation import GraphOperation
    from gradcheck_cli.tensorflow_backend.opening import GraphOpener


def trace_case(case: Case, label: str | None = None, types: Sequence[str] = ()) -> tuple[PassTrace, ...]:
    """Trace the backward pass of each output with an upstream of ones, at the first sample point.

    Args:
        case: the case.
        label: one pair, such as `dM1/dM0`; default: each differentiable output, to all inputs.
        types: show ops of these types alone; default: all but plain `Identity`.

    Raises:
        UsageError: there is no such pair, or no op of such a type.
        CaseFailedError: forward or gradient can't be evaluated.
    """
    start_tensorflow()
    with users_code(case):
        from gradcheck_cli.tensorflow_backend.backward_walk import walk  # noqa: PLC0415 (late: TensorFlow)
        from gradcheck_cli.tensorflow_backend.opening import GraphOpener  # noqa: PLC0415

        _, op, paths = _paths(GraphOpener(case), label)
        found, known = [], set()
        for output, numbers in paths:
            try:
                walked = walk(op, output, numbers)
            except GradientFormError as error:
                raise CaseFailedError("gradient", error.message) from error
            passes, gradients = walked.passes(np.ones(op.outputs[output].shape))
            ops = traced(passes)
            known |= {one.place.type for one in ops}
            shown = tuple(
                one
                for one, step in zip(ops, walked.steps, strict=True)
                if (one.place.type in types if types else not step.passes_on or one.marks)
            )
            found.append(
                PassTrace(
                    op.outputs[output].name,
                    tuple(op.inputs[number].name for number in numbers),
                    shown,
                    tuple(summary_of(gradient) for gradient in gradients),
                    len(ops) - len(shown) if not types else 0,
                )
            )
    missing = [name for name in types if name not in known]
    if missing:
        raise UsageError(
            f"--type: no op of type {', '.join(missing)} on the way; there are "
            f"{', '.join(sorted(known)) or 'none'}."
        )
    return tuple(found)


def blame_case(case: Case, label: str | None = None) -> tuple[PathBlame, ...]:
    """Find the op to blame, at every sample point.

    Args:
        case: the case.
        label: one pair, such as `dM1/dM0`; default: each differentiable output, with all inputs at once.

    Raises:
        UsageError: there is no such pair.
        CaseFailedError: forward or gradient can't be evaluated.
    """
    start_tensorflow()
    with users_code(case):
        from gradcheck_cli.tensorflow_backend.opening import GraphOpener  # noqa: PLC0415 (late: TensorFlow)
        from gradcheck_cli.tensorflow_backend.sample_point import points  # noqa: PLC0415

        opener, _, paths = _paths(GraphOpener(case), label)
        return tuple(
            blame_path(opener.case, output, numbers, points(case), opener) for output, numbers in paths
        )


def _paths(
    opener: GraphOpener, label: str | None
) -> tuple[GraphOpener, GraphOperation, list[tuple[int, list[int]]]]:
    """Return (output number, input numbers) of what is asked for, the op that has them, and its opener."""
    if label is not None:
        found = open_pair(opener, label)
        output, number = found.pair
        return found.opener, found.op, [(output, [number])]
    op = opener.declared(0)
    pairs = pairs_of(op)
    if not pairs:
        raise CaseFailedError(
            "pairs",
            "there is nothing to differentiate: no floating-point output, or no floating-point input.",
        )
    outputs = dict.fromkeys(output for output, _ in pairs)
    return (
        opener,
        op,
        [(output, [number for place, number in pairs if place == output]) for output in outputs],
    )
