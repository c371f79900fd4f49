"""Finds the hand-written gradients of a package, and says which a run has checked: `list`, `run --cov`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradcheck_cli.hooks import Command, FeatureOptions, FoundGradient

if TYPE_CHECKING:
    from rich.text import Text

    from gradcheck_cli.results import Report

COMMANDS = {
    "list": Command(
        "gradcheck_cli.features.coverage.list_command", "List registered gradients and where they are."
    )
}


def run_options() -> FeatureOptions:
    """Return `--cov` and the options beside it."""
    from gradcheck_cli.features.coverage.coverage_options import RUN_OPTIONS

    return RUN_OPTIONS


def closing_lines(report: Report, width: int) -> list[Text]:
    """Lay out what was covered: sides of branches, and gradients."""
    from gradcheck_cli.features.coverage.coverage_report import branch_lines, coverage_lines

    lines = list(branch_lines(report))
    return lines + (coverage_lines(report.coverage, width) if report.coverage else [])


def find_gradients(package: str, places: Sequence[str]) -> Sequence[FoundGradient]:
    """Return the gradients in a package's text; see `hooks.find_gradients`."""
    from gradcheck_cli.features.coverage.gradients_in_text import read_package

    return read_package(package, places).finds
