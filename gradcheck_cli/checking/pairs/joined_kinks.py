"""Leave rows undecided where the chain rule joins several kinks at one point.

The chain rule doesn't hold at kinks. `relu(x) - 2 relu(-x)` has the slopes 1 and 2 at zero. TensorFlow takes
0 for relu'(0) and returns the gradient 0, which is neither of them, nor between them (Kakade and Lee,
"Provably Correct Automatic Subdifferentiation", NeurIPS 2018; Bolte and Pauwels, "Conservative set valued
fields", 2021). A row of zeros before a layer with relu is such a point. Nobody wrote a wrong gradient there;
but the gradient is no slope either, so it doesn't pass.

If the user wrote some of these gradients, each must be right by itself. A function that has a derivative at
the point has no other right gradient: TensorFlow's `logaddexp` of two equal numbers is wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.pairs.pair_sample import Rule
from gradcheck_cli.numerics.reasons import Reason, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradcheck_cli.checking.pairs.pair import Pair
    from gradcheck_cli.checking.pairs.pair_sample import PairSample


def leave_joined_kinks(pair: Pair, sample: PairSample, are_right_alone: Callable[[], bool]) -> PairSample:
    """Return a pair's verdicts, undecided where several ops of TensorFlow's are at a kink.

    Args:
        pair: the pair; one that is expected to be wrong stays so.
        sample: the verdicts at a sample point.
        are_right_alone: whether the user's own gradients on the path are right, each by itself.
    """
    wrong = sample.verdict == Verdict.MISMATCH
    at_kink = (sample.verdict == Verdict.KINK) | (wrong & (sample.reason == Reason.JOINED_KINKS))
    # A row is one output: where one of its elements is at a kink, the others' slopes may be mixed ones.
    joined = wrong & at_kink.any(axis=1, keepdims=True) & np.isfinite(sample.analytic)
    # A mismatch elsewhere must be reported.
    if not joined.any() or (wrong & ~joined).any() or pair.is_expected_wrong:
        return sample
    # With a reference, the gradient is meant to be that of another function, and has no part in its kinks.
    if pair.case.reference is not None:
        return sample
    if not pair.operations.formula.is_plain_chain(*pair.key) and not are_right_alone():
        return sample
    settled = sample.settle(joined, Verdict.INCONCLUSIVE, Rule.JOINED_KINKS, Reason.JOINED_KINKS)
    return replace(settled, remark="")
