"""The baseline: what each pair was like when it was last accepted, and what has changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.hooks import Command, FeatureOptions

if TYPE_CHECKING:
    from gradcheck_cli.features.baseline.fingerprint import BaselineFacts

COMMANDS = {"diff": Command("gradcheck_cli.features.baseline.diff_command", "Compare two JSON reports.")}
FOR_CASES = ("gradcheck_cli.features.baseline.fingerprint",)


def run_options() -> FeatureOptions:
    """Return `--baseline` and `--update-baseline`."""
    from gradcheck_cli.features.baseline.baselines import RUN_OPTIONS

    return RUN_OPTIONS


def point_recorder() -> BaselineFacts:
    """Return what records a case's fingerprints and tolerances."""
    from gradcheck_cli.features.baseline.fingerprint import BaselineFacts

    return BaselineFacts()
