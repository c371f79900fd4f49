"""The command group: finds commands without importing them all, and turns errors into exit codes."""

from __future__ import annotations

import difflib
import os
import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from gradcheck_cli import __version__
from gradcheck_cli.errors import CaseFailedError, GradcheckError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# name -> module (its attribute `command`) and the line that `--help` shows without importing it
COMMANDS = {
    "run": ("gradcheck_cli.cli.run", "Check the gradients that specs describe."),
    "list": ("gradcheck_cli.cli.list", "List registered gradients and where they are."),
    "validate": ("gradcheck_cli.cli.validate", "Read specs and report every fault."),
    "schema": ("gradcheck_cli.cli.schema", "Print the JSON Schema of the spec format."),
    "merge": ("gradcheck_cli.cli.merge", "Join the JSON reports of shards into one."),
    "diff": ("gradcheck_cli.cli.diff", "Compare two JSON reports."),
    "init": ("gradcheck_cli.cli.init", "Write a spec to start from."),
    "show": ("gradcheck_cli.cli.show", "Print a pair's analytic and numeric Jacobian."),
    "trace": ("gradcheck_cli.cli.trace", "Print one backward pass, op by op."),
    "mutate": ("gradcheck_cli.cli.mutate", "Say which wrong gradients specs would miss."),
    "completion": ("gradcheck_cli.cli.completion", "Print a shell's completion script."),
    "blame": ("gradcheck_cli.cli.blame", "Find the op whose own gradient is wrong."),
}

USAGE = 2
INTERNAL = 3  # not 1: a crash of ours is no verdict on anybody's gradient
INTERRUPTED = 130  # 128 + SIGINT
BROKEN_PIPE = 141  # 128 + SIGPIPE, what a shell reports for any program whose reader left


class ReaderLeft(Exception):  # noqa: N818 (no error)
    """Standard output was closed by whoever read it, as `head` does."""


@contextmanager
def _noticing_readers_who_leave() -> Iterator[None]:
    """Keep a broken pipe from click and rich: both exit with 1, which would read as "gradient wrong"."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderLeft from error
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):
            raise ReaderLeft from error
        raise


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command runs."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:  # noqa: ANN401 (click's own)
        """Read the command line; `--help` and `--version` print here."""
        with _noticing_readers_who_leave():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 (click's own)
        """Run the command."""
        with _noticing_readers_who_leave():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command's module and return its `command`."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say which one was meant."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            close = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean '{close[0]}'?" if close else f" Commands: {', '.join(COMMANDS)}."
            raise click.UsageError(f"No such command '{name}'.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the commands' one-line descriptions, which are known without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if not value or ctx.resilient_parsing:
        return
    # Importing these for their version costs a fifth of each `--help`.
    import platform  # noqa: PLC0415
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        tensorflow = version("tensorflow")
    except PackageNotFoundError:
        tensorflow = "not installed"
    click.echo(f"gradcheck {__version__} (tensorflow {tensorflow}, python {platform.python_version()})")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the versions of gradcheck, TensorFlow and Python.",
)
def cli() -> None:
    """Check custom TensorFlow gradients against numeric derivatives.

    \b
    Exit codes: 0 all right, 1 a gradient is wrong, 2 bad usage or a bad spec,
    3 something could not be decided or run, 5 no spec matched, 130 interrupted.
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; every error becomes a line on standard error.

    Args:
        arguments: the command line after the program's name; default `sys.argv[1:]`.

    Returns:
        The exit code (DESIGN §4).
    """
    try:
        outcome: Any = cli.main(
            args=None if arguments is None else list(arguments), prog_name="gradcheck", standalone_mode=False
        )
        sys.stdout.flush()
    except GradcheckError as error:
        click.echo(str(error), err=True)
        if isinstance(error, CaseFailedError):
            for frame in error.traceback:  # the user's own frames: where to look
                click.echo(f"  {frame}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except (ReaderLeft, BrokenPipeError):
        # What is still in the buffer would raise again when Python flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 (Python's own exit code 1 would read as "gradient wrong")
        import traceback  # noqa: PLC0415

        traceback.print_exc()
        click.echo(f"gradcheck: internal error ({type(error).__name__}): a bug; please report it", err=True)
        return INTERNAL
    return outcome if isinstance(outcome, int) else 0


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    # A terminal that can't show "·" or "±" gets "?", not an exception.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.exit(run_command())


if __name__ == "__main__":
    main()
