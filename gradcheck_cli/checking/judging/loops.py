"""Find out whether a gradient is wrong only since a loop stops: right is that of the loop's limit.

A solver's loop stops where its values move by less than a tolerance, and the implicit function theorem gives
the gradient of its limit. So what is wrong is judged again where the forward's loops run on. What is right
there is as far off as the loop is from its limit, and only the author knows whether that is fine.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from gradcheck_cli.checking.judging.judge_by_probes import probe_pairs
from gradcheck_cli.checking.judging.ledger import Evidence, Samples, Stage, judge_pairs, settle_pairs
from gradcheck_cli.checking.ops.analytic import analytic_jacobians
from gradcheck_cli.checking.ops.budget import Budget
from gradcheck_cli.checking.ops.jacobian import PairKey
from gradcheck_cli.checking.ops.operation import Operations
from gradcheck_cli.checking.pairs.pair import Pair, PairSample, Rule
from gradcheck_cli.checking.pairs.rounding import cap_of
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.numerics.sampling import Sparsity
from gradcheck_cli.numerics.shared_limits import OWN_ORDER

# Twice as many rounds square what is left of a linear convergence. More are tried last: a solver that is at
# its end may divide zero by zero.
_TIMES = (2, 4)


def judge_where_loops_run_on(
    pairs: Mapping[PairKey, Pair],
    sparsities: Mapping[PairKey, Sparsity],
    sample: int,
    budget: Budget,
    judged: Samples,
) -> Samples:
    """Leave open what is wrong as loops stop and right where they run on; up to the cap, it passes.

    Args:
        pairs: the pairs at the point.
        sparsities: of pairs that are judged without their zeros.
        sample: index of the sample point.
        budget: limits what probes may spend.
        judged: the verdicts.
    """
    settled = dict(judged)
    for times in _TIMES:
        wrong = [key for key, each in settled.items() if each.is_wrong]
        with suppress(CaseFailedError):  # what a loop writes to may have an end
            if not wrong or (operations := _running_on(pairs[wrong[0]].operations, times)) is None:
                break
            on = {key: pairs[key].with_operations(operations) for key in wrong}
            few = [key for key in wrong if settled[key].probes is None]
            jacobians = analytic_jacobians(on[wrong[0]].case, operations.formula, few, sparsities)
            again = settle_pairs(Stage.FORMULA, Evidence(on, sparsities), judge_pairs(on, jacobians))
            again |= probe_pairs({key: on[key] for key in wrong if key not in few}, sample, budget)
            settled |= {key: _of_limit(pairs[key], settled[key], each) for key, each in again.items()}
    return settled


def _running_on(operations: Operations, times: int) -> Operations | None:
    """Return the ops with loops that run on; `None` where the formula has none, or returns more then."""
    on = operations.in_form(lambda forms: forms.running_on(times))
    if on is None or [*on.formula.outputs] != [*operations.formula.outputs]:
        return None
    return replace(on, budget=Budget())


def _of_limit(pair: Pair, sample: PairSample, on: PairSample) -> PairSample:
    """Return a pair's verdicts, given those where loops run on; as they were, if one isn't explained."""
    wrong, error = sample.verdict == Verdict.MISMATCH, np.abs(sample.analytic - sample.numeric)
    passes, is_explained = np.zeros(wrong.shape, np.bool_), False
    if sample.probes is not None:
        is_explained = on.is_right
    elif not on.is_wrong and on.verdict.shape == wrong.shape:
        # Noise may hide what is left; it can't be what was wrong. And if a loop makes another function of the
        # input, rather than a better value, the gradient isn't near the limit's.
        left = np.abs(on.analytic - on.numeric) + on.uncertainty
        moved, most = np.abs(sample.analytic - on.numeric), np.max(error, axis=1, keepdims=True)
        explained = (on.verdict < Verdict.MISMATCH) | (left <= OWN_ORDER * error)
        is_explained = bool((explained & (moved <= most / OWN_ORDER))[wrong].all())
        passes = wrong & (error <= cap_of(pair, sample))
    if not is_explained:
        return sample
    share = float(np.max((error / sample.larger)[wrong]))
    passed = sample.settle(passes, Verdict.PASS, Rule.LOOP, allowed=np.maximum(sample.allowed, error))
    told = (
        f"right if the forward's loop runs on, and off by up to {share:.1e} of an element where it stops: "
        "does it stop at a tolerance?"
    )
    if not passed.is_wrong:
        return replace(passed, loss=f"precision: {pair.label}: {told}")
    undecided = passed.settle(wrong & ~passes, Verdict.INCONCLUSIVE, Rule.LOOP)
    return replace(
        undecided, doubt=f"{told} Make it smaller for the check, or say what error is fine ('rtol')."
    )
