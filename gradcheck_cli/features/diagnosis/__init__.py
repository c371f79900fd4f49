"""Guesses which mistake is behind a wrong gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradcheck_cli.checking.ops.opener import Operations
    from gradcheck_cli.checking.ops.operation import TensorInfo
    from gradcheck_cli.checking.pairs.pair_sample import PairSample, PointData
    from gradcheck_cli.results import CheckResult, PairResult
    from gradcheck_cli.spec.case import Case

FOR_CASES = ("gradcheck_cli.features.diagnosis.diagnosing",)


def diagnose(
    samples: Sequence[PairSample],
    output: TensorInfo,
    input_info: TensorInfo,
    other_pairs: Sequence[Mapping[str, PairSample]],
    points: Sequence[PointData],
) -> tuple[str, ...]:
    """Say which mistake a pair's error looks like; see `hooks.diagnose`."""
    from gradcheck_cli.features.diagnosis.diagnosing import diagnose as guess

    return guess(samples, output, input_info, other_pairs, points)


def add_causes(
    case: Case, operations: Operations | None, pairs: tuple[PairResult, ...], checks: Sequence[CheckResult]
) -> tuple[PairResult, ...]:
    """Return the pairs with the cause of their mismatch, where the rest of the case shows it."""
    from gradcheck_cli.features.diagnosis import diagnosing

    return diagnosing.add_causes(case, operations, pairs, checks)


def order_checks(checks: list[CheckResult]) -> list[CheckResult]:
    """Return the checks of a case, the likely cause of the others first."""
    from gradcheck_cli.features.diagnosis.diagnosing import put_cause_first

    return put_cause_first(checks)
