"""This process's output: its streams, how it looks, and a run that prints each result as it comes.

Standard output and error may be closed, full, or abandoned by their reader: a run whose output nobody reads
any more still writes its reports and has its exit code. Text from outside can't give commands to a CI service
that reads the output. Output has colour on a terminal, and lines of its width. Where standard error is a
terminal, a progress bar is drawn there while cases run.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text

    from gradcheck_cli.results import CaseResult, Report
    from gradcheck_cli.running.run_loop import Workers
    from gradcheck_cli.spec.case import Case

FALLBACK_WIDTH = 80
NEWEST_TENSORFLOW = (2, 21)  # that is tested with
MIN_WIDTH = 64  # below this, a row of a table doesn't fit: the terminal's own wrapping is as good
BROKEN_PIPE = 141  # 128 + SIGPIPE, what a shell reports for any program whose reader left
_REMEMBERED = 200  # characters of the last line: enough to see whether a CI command begins or ends there
LOST = 3  # closed or full: the output couldn't be written
# The commands that a CI service obeys in a job's log. GitHub and Azure find `##[` and `##vso[` anywhere in a
# line; the others count only at its start.
_ANYWHERE = re.compile(r"##(?=\[|vso\[)", re.IGNORECASE)
_AT_START = re.compile(r"^(\s*)(::|##teamcity\[)", re.IGNORECASE)
_CI = ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")


class OutputLostError(Exception):
    """Standard output can't be written to, and the command has no other purpose."""


class Outlet:
    """A stream that is written to until that fails; anything after that is dropped.

    Attributes:
        lost: why it can't be written to, after that has failed.
        goes_on: whether the command does more than print.
    """

    def __init__(self, stream: TextIO | None, *, goes_on: bool) -> None:
        """Keep the stream; `None`, which was closed before this process began, can't be written to."""
        self._stream = stream or Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 (for good)
        self._is_ci = is_read_by_ci()
        self._line = ""  # the content of the last line
        self.lost: OSError | None = None
        self.goes_on = goes_on

    @property
    def code(self) -> int:
        """The exit code of a command whose output was lost; 0 if it wasn't."""
        if self.lost is None:
            return 0
        return BROKEN_PIPE if isinstance(self.lost, BrokenPipeError) else LOST

    def write(self, text: str) -> int:
        """Write, or drop the text if that fails."""
        return self.write_commands(without_commands(text, self._line) if self._is_ci else text)

    def write_commands(self, text: str) -> int:
        """Write annotations, which a CI service is meant to read."""
        self._line = (self._line + text).rpartition("\n")[2][-_REMEMBERED:]
        self._attempt(lambda stream: stream.write(text))
        return len(text)

    def writelines(self, lines: Any) -> None:  # noqa: ANN401 (as every stream has it)
        """Write lines, or drop them if that fails."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Write the buffer's content, or drop it if that fails."""
        self._attempt(lambda stream: stream.flush())

    def _attempt(self, action: Any) -> None:  # noqa: ANN401 (a function of a stream)
        if self.lost is None:
            try:
                action(self._stream)
            except OSError as error:
                self.lost = error
                # The buffer's content would raise again when Python flushes it at exit.
                with suppress(OSError, ValueError, AttributeError):
                    descriptor = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(descriptor, self.fileno())
                    os.close(descriptor)
        if self.lost is not None and not self.goes_on:
            raise OutputLostError(str(self.lost))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (whatever else a stream has)
        return getattr(self._stream, name)


def is_read_by_ci() -> bool:
    """Whether a CI service reads what this process prints."""
    return any(os.environ.get(name, "") not in ("", "0", "false") for name in _CI)


def without_commands(text: str, before: str = "") -> str:
    """Return text with a blank inserted into whatever a CI service would obey."""
    lines = re.split(r"(?<=[\n\r])", text)
    for index, line in enumerate(lines):
        start = before if index == 0 else ""
        whole = _AT_START.sub(lambda match: f"{match[1]}{match[2][0]} {match[2][1:]}", start + line)
        whole = _ANYWHERE.sub("# #", whole)
        # What is printed can't be changed, so a blank is put in between.
        lines[index] = whole[len(start) :] if whole.startswith(start) else f" {line}"
    return "".join(lines)


@contextmanager
def guard_output() -> Iterator[Outlet]:
    """Write to standard output and error through outlets; yield that of standard output."""
    out, err = sys.stdout, sys.stderr
    if isinstance(out, Outlet):  # inside another command of this process
        yield out
        return
    outlet = Outlet(out, goes_on=False)
    sys.stdout, sys.stderr = cast("TextIO", outlet), cast("TextIO", Outlet(err, goes_on=True))
    try:
        yield outlet
    finally:
        sys.stdout, sys.stderr = out, err


def go_on_without_output() -> None:
    """Record that the command also writes reports, so that lost output doesn't end it."""
    if isinstance(sys.stdout, Outlet):
        sys.stdout.goes_on = True


def print_commands(text: str, *, err: bool) -> None:
    """Print annotations, which a CI service is meant to read; `err`: on standard error."""
    stream = sys.stderr if err else sys.stdout
    (stream.write_commands if isinstance(stream, Outlet) else stream.write)(text)
    stream.flush()


def open_standard_descriptors() -> None:
    """Open the null device for standard descriptors that are closed: a file would take their number."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is this one


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
    from rich.console import Console  # late: `--help` doesn't wait for it

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


def print_lines(lines: Iterable[Text], console: Console | None = None) -> None:
    """Print laid-out lines unchanged and at once, on standard output unless a console is given."""
    console = console or console_for(sys.stdout)
    for line in lines:
        line.rstrip()
        console.print(line, soft_wrap=True)
    console.file.flush()


def run_and_print(
    workers: Workers,
    cases: Sequence[Case],
    lines_of: Callable[[CaseResult], Sequence[Text]],
    **how: Any,  # noqa: ANN401 (as `run_in_workers` has it)
) -> Report:
    """Run cases in workers, which are closed afterwards, and print each result when it is ready.

    Args:
        lines_of: lays out a result; a result without lines isn't printed.
        how: what else `run_in_workers` takes.
    """
    from gradcheck_cli.running.run_loop import run_in_workers

    console = console_for(sys.stdout)
    # A forward that prints would break JSON results, or print between rows, so it prints to stderr.
    with redirect_stdout(sys.stderr), progress_bar(len(cases), workers.status) as bar:

        def on_case(result: CaseResult) -> None:
            bar.update(advance=1)
            if lines := lines_of(result):
                with bar.paused():
                    print_lines(lines, console)

        report = run_in_workers(workers, cases, on_progress=bar.show_case, on_case=on_case, **how)
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
    """Shows the progress of a run."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def show_case(self, case: Case, share: float | None) -> None:
        """Show which case is being checked, and how much of it is done."""
        done = "" if share is None else f" · {share:.0%}"
        name = case.op if case.name == "default" else f"{case.op} · {case.name}"
        self.update(description=name + done)

    def update(self, **changes: Any) -> None:  # noqa: ANN401 (of a task of rich's)
        """Change what it shows, such as `advance=1`."""
        self._progress.update(self._progress.task_ids[0], **changes)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar while results are printed; both may share one terminal."""
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()


@contextmanager
def progress_bar(total: int, status: Callable[[], str] | None = None) -> Iterator[Bar]:
    """Draw a bar on standard error, if that is a terminal, while the block runs; then remove it.

    Args:
        status: describes what runs, if that is more than the case that began last.
    """
    is_drawn = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

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
        disable=not is_drawn,
    )
    progress.add_task("starting TensorFlow", total=total)
    with progress:
        yield Bar(progress)
