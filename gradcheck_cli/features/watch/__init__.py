"""Checks again when a file is saved, and joins the reports of shards: `run --watch`, `merge`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from gradcheck_cli.hooks import Command

if TYPE_CHECKING:
    from gradcheck_cli.cli.options.worker_options import WorkerOptions
    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.spec.case import Case

COMMANDS = {
    "merge": Command(
        "gradcheck_cli.features.watch.merge_command", "Merge the JSON reports of shards into one."
    )
}


def watch_cases(
    ctx: click.Context,
    paths: Sequence[str],
    read: Callable[[], Sequence[Case]],
    workers: WorkerOptions,
    mark: Callable[[CaseResult], CaseResult],
) -> int:
    """Watch files, with the options of `run`, and return the exit code."""
    from gradcheck_cli.features.watch.watching import watch_command

    return watch_command(ctx, paths, read, workers, mark)
