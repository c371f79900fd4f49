"""Corrupts gradients on purpose, to see what the checks notice: `mutate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradcheck_cli.hooks import Command

if TYPE_CHECKING:
    from gradcheck_cli.checking.verdicts.summary import Findings
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.opening.openers import CaseOpener

COMMANDS = {
    "mutate": Command(
        "gradcheck_cli.features.mutation.mutate_command", "Say which wrong gradients specs would miss."
    )
}


def run_corrupted(case: Case, opener: CaseOpener[Any], points: Sequence[int]) -> Findings:
    """Check a case's gradient with each of its corruptions in turn."""
    from gradcheck_cli.features.mutation.mutate_case import mutate

    return mutate(case, opener, points, case.corruptions)
