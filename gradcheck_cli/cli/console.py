"""How this process's output looks, and a run that prints each result as it comes.

Output has colour on a terminal, and lines of its width. Where standard error is a terminal, a progress bar is
drawn there while cases run.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, TextIO

import click
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from gradcheck_cli.results import CaseResult, Report
    from gradcheck_cli.running.run_loop import Stopper, Workers
    from gradcheck_cli.spec.case import Case

FALLBACK_WIDTH = 80
NEWEST_TENSORFLOW = (2, 21)  # that is tested with
MIN_WIDTH = 40  # below this, not even the numbers fit: the terminal's own wrapping is as good


def terminal_width() -> int:
    """Return the width of the terminal behind standard output; 80 if it isn't a terminal."""
    return max(MIN_WIDTH, shutil.get_terminal_size((FALLBACK_WIDTH, 24)).columns)


def uses_colour(stream: TextIO) -> bool:
    """Whether output gets colour: on a terminal or with FORCE_COLOR, never with NO_COLOR."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def console_for(stream: TextIO) -> Console:
    """Return a rich console on `stream` that prints text unchanged."""
    coloured = uses_colour(stream)
    return Console(
        file=stream,
        color_system="standard" if coloured else None,
        force_terminal=True if coloured else None,
        highlight=False,
        markup=False,
        emoji=False,
        width=terminal_width(),
    )


def print_lines(console: Console, lines: Iterable[Text]) -> None:
    """Print laid-out lines unchanged and at once, without waiting for a full buffer."""
    for line in lines:
        line.rstrip()
        console.print(line, soft_wrap=True)
    console.file.flush()


def run_and_print(
    workers: Workers,
    cases: Sequence[Case],
    lines_of: Callable[[CaseResult], Sequence[Text]],
    *,
    stopper: Stopper | None = None,
    mark: Callable[[CaseResult], CaseResult] | None = None,
) -> Report:
    """Run cases in workers, which are closed afterwards, and print each result when it is ready.

    Args:
        lines_of: lays out a result; a result without lines isn't printed.
        mark: marks what doesn't count in a result, before it is printed.
    """
    from gradcheck_cli.running.run_loop import Listener, run_in_workers

    console = console_for(sys.stdout)
    # A forward that prints would break JSON results, or print between rows, so it prints to stderr.
    with redirect_stdout(sys.stderr), progress_bar(len(cases), workers.status) as bar:

        def on_case(result: CaseResult) -> None:
            bar.end_case()
            if lines := lines_of(result):
                with bar.paused():
                    print_lines(console, lines)

        listener = Listener(bar.show_case, bar.show_case, on_case)
        report = run_in_workers(workers, cases, listener=listener, stopper=stopper, mark=mark)
    if warning := version_warning(report.tensorflow_version):
        click.echo(warning, err=True)
    return report


def version_warning(tensorflow: str) -> str:
    """Warn of a version of TensorFlow that is newer than all that were tried; empty for others."""
    release = re.match(r"(\d+)\.(\d+)", tensorflow)
    if release is None or (int(release[1]), int(release[2])) <= NEWEST_TENSORFLOW:
        return ""
    newest = ".".join(map(str, NEWEST_TENSORFLOW))
    return (
        f"warning: TensorFlow {tensorflow} is newer than {newest}, the newest that gradcheck is tested with. "
        "Verdicts are as careful as ever; errors may come from private parts that have moved."
    )


class Bar:
    """Shows the progress of a run; does nothing without a bar to draw."""

    def __init__(self, progress: Progress | None = None, task: TaskID | None = None) -> None:
        self._progress = progress
        self._task = task

    def show_case(self, case: Case, share: float | None = None) -> None:
        """Show which case is being checked, and how much of it is done."""
        if self._progress is not None and self._task is not None:
            done = "" if share is None else f" · {share:.0%}"
            self._progress.update(self._task, description=_name(case) + done)

    def end_case(self) -> None:
        """Move on by one case."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar while results are printed; both may share one terminal."""
        if self._progress is None:
            yield
            return
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()


def _name(case: Case) -> str:
    return case.op if case.name == "default" else f"{case.op} · {case.name}"


@contextmanager
def progress_bar(total: int, status: Callable[[], str] | None = None) -> Iterator[Bar]:
    """Draw a bar on standard error, if that is a terminal, while the block runs; then remove it.

    Args:
        status: describes what runs, if that is more than the case that began last.
    """
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield Bar()
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    class StatusText(ProgressColumn):
        def render(self, task: object) -> Text:  # noqa: ARG002 (rich's)
            return Text(status() if status is not None else "")

    progress = Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),  # from the cases that have ended so far
        TextColumn("{task.description}", markup=False),
        StatusText(),
        console=Console(file=sys.stderr, markup=False),
        transient=True,
        redirect_stdout=False,  # the bar must not reprint results
        redirect_stderr=False,
    )
    task = progress.add_task("starting TensorFlow", total=total)
    with progress:
        yield Bar(progress, task)
