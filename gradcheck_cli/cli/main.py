"""The command group: finds commands without importing them all, and turns errors into exit codes."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from io import UnsupportedOperation
from typing import Any, NoReturn

import click

from gradcheck_cli import __version__, hooks
from gradcheck_cli.cli.console import OutputLostError, guard_output, open_standard_descriptors
from gradcheck_cli.cli.options.typed_words import answer_command, answer_option
from gradcheck_cli.errors import CaseFailedError, GradcheckError, SpecError, suggest
from gradcheck_cli.hooks import Command

# In the order in which a newcomer needs them.
COMMANDS = {
    "run": Command("gradcheck_cli.cli.commands.run", "Check the gradients that specs describe."),
    **hooks.commands(),
    "validate": Command("gradcheck_cli.cli.commands.validate", "Read specs and report every fault."),
}

USAGE = 2
INTERNAL = 3  # not 1: a crash of gradcheck is no verdict on a gradient
INTERRUPTED = 130  # 128 + SIGINT


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click's signature)
        """Return the names in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (click's)
        """Import the command's module and return the command."""
        if cmd_name not in COMMANDS:
            return None
        module, summary, attribute = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        command.short_help = summary  # shells show it beside the name as they complete
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest one."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            hint = answer_command(args) or suggest(name, COMMANDS, "Commands")
            raise click.UsageError(f"No such command '{name}'. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (click's)
        """Write the commands' one-line descriptions, which are known without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])


def _print_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 (click's)
    if not value or ctx.resilient_parsing:
        return
    # Importing these for their version would cost a fifth of each `--help`.
    import platform
    from importlib.metadata import PackageNotFoundError, version

    try:
        tensorflow = version("tensorflow")
    except PackageNotFoundError:
        tensorflow = "not installed"
    click.echo(f"gradcheck {__version__} (tensorflow {tensorflow}, python {platform.python_version()})")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-V",
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
    3 something could not be decided, run or printed, 5 no spec matched,
    130 interrupted, 141 standard output was closed by its reader.
    """  # noqa: D301 (click's mark for a paragraph that isn't to be wrapped)


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; every error becomes a line on standard error.

    Args:
        arguments: the command line after the program's name; default `sys.argv[1:]`.

    Returns:
        The exit code. If standard output couldn't be written to, it is that of the findings if they are a
        failure; otherwise `console.LOST`, or `console.BROKEN_PIPE` if its reader left.
    """
    with guard_output() as out:
        try:
            code = _run(arguments)
            out.goes_on = True
            out.flush()
        except OutputLostError:
            code = 0
        if out.lost is not None and not isinstance(out.lost, BrokenPipeError):
            click.echo(f"gradcheck: standard output can't be written to: {_reason(out.lost)}", err=True)
        return code or out.code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        outcome: Any = cli.main(
            args=None if arguments is None else list(arguments), prog_name="gradcheck", standalone_mode=False
        )
    except OutputLostError:
        raise
    except GradcheckError as error:
        click.echo(_message_of(error), err=True)
        if isinstance(error, CaseFailedError):
            for frame in error.traceback:  # the user's own frames
                click.echo(f"  {frame}", err=True)
        return error.exit_code
    except click.ClickException as error:
        if answer := _answer(error):
            error = click.UsageError(answer, getattr(error, "ctx", None))
        error.show()
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except OSError as error:  # about a file, folder or device of the user
        click.echo(f"gradcheck: {_place(error)}: {_reason(error)}", err=True)
        return USAGE
    except Exception as error:  # noqa: BLE001 (Python's own exit code 1 would read as "gradient wrong")
        import traceback

        traceback.print_exc()
        click.echo(f"gradcheck: internal error ({type(error).__name__}): a bug; please report it", err=True)
        return INTERNAL
    return outcome if isinstance(outcome, int) else 0


def _answer(error: click.ClickException) -> str:
    """Say what to type where an option or its value isn't one; empty where click's own words do."""
    if isinstance(error, click.BadParameter) and error.param is not None:
        choices, wrong = error.param.type, error.message.partition("' is not one of")[0].lstrip("'")
        near = suggest(wrong, choices.choices) if isinstance(choices, click.Choice) else ""
        return near and f"{error.format_message()} {near}"
    if not isinstance(error, click.NoSuchOption):
        return ""
    option = error.option_name
    context = click.Context(cli)
    owners = [
        name
        for name in COMMANDS
        if (command := cli.get_command(context, name))
        and any(option in param.opts for param in command.params)
    ]
    elsewhere = f"It is an option of gradcheck {', '.join(owners)}." if owners else ""
    remedy = answer_option(option) or elsewhere
    return remedy and f"No such option '{option}'. {remedy}"


def _message_of(error: GradcheckError) -> str:
    """Return an error's message; on a terminal, with the lines of a spec's faults."""
    if not isinstance(error, SpecError) or not sys.stderr.isatty():
        return str(error)
    from gradcheck_cli.reporting.formats import add_excerpts

    return add_excerpts(error.faults)


def _place(error: OSError) -> str:
    """Return what an error is about: a file, or the working folder, which may have been deleted."""
    try:
        os.getcwd()  # noqa: PTH109 (it is about the system's answer)
    except OSError:
        return "the working folder"
    return "the system" if error.filename is None else os.fsdecode(error.filename)


def _reason(error: OSError) -> str:
    if isinstance(error, UnsupportedOperation):  # see `Outlet`
        return "it is closed"
    return error.strerror or str(error) or type(error).__name__


def _interrupt(_number: int, _frame: object) -> None:
    """Treat SIGTERM, by which CI services cancel a job, as Ctrl-C: the reports are still written."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's background process
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    open_standard_descriptors()
    # A terminal that can't show "·" or "±" gets "?", not an exception.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, _interrupt)
    code = run_command()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # finished: Python's own end must not print a traceback
    gc.freeze()  # else Python, as it ends, searches all of TensorFlow for garbage: a second
    sys.exit(code)


if __name__ == "__main__":
    main()
