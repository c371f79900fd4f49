"""The pairs that a case has, of first and second order, by label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gradcheck_cli.checking.ops.jacobian import PairKey
from gradcheck_cli.checking.ops.opener import Opening
from gradcheck_cli.checking.ops.operation import Operation
from gradcheck_cli.checking.pairs.pair import label_of, pair_keys
from gradcheck_cli.errors import UsageError
from gradcheck_cli.results import PairResult, Status
from gradcheck_cli.spec.case import Case

if TYPE_CHECKING:  # TensorFlow is imported by `startup`, which holds its messages back
    from gradcheck_cli.tensorflow_backend.opening.openers import CaseOpener


class OpenedPair(NamedTuple):
    """A pair, the op that has it, and the opener of that op."""

    opener: CaseOpener[Any]
    op: Any
    pair: PairKey


def open_pair(opener: CaseOpener[Any], label: str, sample: int = 0) -> OpenedPair:
    """Open the op that has a pair: the case's own for `dy/dx`, or its vjp for `d2y/dx.dx`.

    Raises:
        UsageError: there is no such pair.
        CaseFailedError: the case can't be opened.
    """
    op = opener.open(Opening(sample))
    own_pairs = labels_of(op)
    if label in own_pairs:
        return OpenedPair(opener, op, own_pairs[label])
    known_labels = list(own_pairs)
    if opener.case.second_order:
        vjp = opener.vjp(op)
        second = vjp.open(Opening(sample))
        second_pairs = labels_of(second)
        if label in second_pairs:
            return OpenedPair(vjp, second, second_pairs[label])
        known_labels += second_pairs
    raise UsageError(f"--pair: no pair {label!r}; there are {', '.join(known_labels) or 'none'}.")


def labels_of(op: Operation) -> dict[str, PairKey]:
    """Return the pairs of an op by label."""
    return {label_of(op, pair): pair for pair in pair_keys(op)}


def pairs_of_case(case: Case) -> tuple[PairResult, ...]:
    """Open a case and return its pairs, each as skipped: nothing is checked.

    Raises:
        CaseFailedError: the case can't be opened.
        CaseSkippedError: it can't have its mode.
    """
    from gradcheck_cli.tensorflow_backend.devices import on_device
    from gradcheck_cli.tensorflow_backend.opening.openers import opener_of

    with on_device(case.device):
        opener = opener_of(case, case.mode)
        op = opener.open(Opening())
        ops = [op, opener.vjp(op).open(Opening())] if case.second_order else [op]
        return tuple(
            PairResult(label, opened.outputs[output].name, opened.inputs[input_index].name, Status.SKIPPED)
            for opened in ops
            for label, (output, input_index) in labels_of(opened).items()
        )
