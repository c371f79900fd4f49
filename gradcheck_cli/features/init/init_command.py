"""`gradcheck init`: writes a spec to start from.

Drafts are made in a separate process: a kernel may abort on inputs that it is tried with. Each call is
recorded before it runs. If the process dies, another one continues without that call.
"""

from __future__ import annotations

import os
import re
import shlex
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradcheck_cli import hooks
from gradcheck_cli.cli.options.configured import argument, default_paths, option, takes
from gradcheck_cli.cli.options.typed_words import function_named
from gradcheck_cli.errors import CaseFailedError, GradcheckError, UsageError
from gradcheck_cli.plain_files import write_text
from gradcheck_cli.running.expendable import ExpendableProcess

if TYPE_CHECKING:
    from gradcheck_cli.features.init.drafting import Drafted

_GRADIENT = re.compile(r"_(grad|gradient|backward|vjp)$")
_INVENTED = (
    "is no op type, but a name that gradient_override_map uses. Write a spec with the function as forward, "
    "this gradient as gradient, the overridden op_type, and binding: override"
)
STANDARD_OUTPUT = "-"
SCHEMA_FILE = "gradcheck.schema.json"  # the name under which editors find it
_MOST_DEATHS = 5
_UNDRAFTED = 3  # what was written doesn't run, or nothing was written


@dataclass(frozen=True)
class InitOptions:
    """What specs are written for, and where."""

    targets: tuple[str, ...] = argument(nargs=-1, metavar="[MODULE:FUNCTION]...")
    op_type: str | None = option("--op-type TYPE", None, "Write one for this op type, from its definition.")
    missing: str | None = option(
        "--missing PACKAGE",
        None,
        "Write one for each gradient of PACKAGE that no spec checks yet: functions with a custom gradient, "
        "and op types for which it registers one. All of its modules are imported.",
    )
    output: str | None = option(
        "-o --output FILE", None, "Where to write it; - for standard output. [default: NAME.yaml in specs/]"
    )
    force: bool = option("--force", bool, "Overwrite an existing file.")


@click.command("init")
@takes(InitOptions)
@click.pass_context
def command(ctx: click.Context, *, options: InitOptions) -> None:
    """Write a spec for MODULE:FUNCTION: a function, a layer, or anything with a custom gradient.

    The module is imported from the working directory. Inputs come from the signature; shapes come from
    annotations and defaults, or from trying what the function takes; guesses are marked. The spec is then
    run: domains and dtypes are tried until it tests something; what is still undecided is reported. If the
    gradient is right for some inputs and wrong for others, the spec asks whether those are meant. For a
    gradient function, NAME_grad, the spec of NAME is written.
    """
    package = options.missing
    if sum(map(bool, (options.targets, options.op_type, package))) != 1:
        raise click.UsageError("name either MODULE:FUNCTION, --op-type TYPE or --missing PACKAGE.", ctx)
    targets = tuple(map(function_named, options.targets)) or (options.op_type or "",)
    if package:
        targets = _find_uncovered(package)
    if options.output and options.output != STANDARD_OUTPUT:
        if len(targets) > 1:
            raise click.UsageError(f"-o names one file, and there are {len(targets)} specs to write.", ctx)
        _check(Path(options.output), options)  # before the draft, which takes a while
    failures = 0
    with closing(DraftingProcess()) as process:
        for index, target in enumerate(targets):
            try:
                drafted = _draft(target, process)
                _write_one(drafted, options, is_next=index > 0)
                failures += not drafted.runs
            except GradcheckError as error:
                if not package:
                    raise
                failures += 1  # a target that can't be drafted doesn't stop the others
                is_invented = isinstance(error, CaseFailedError) and error.kind == "op_type"
                told = _INVENTED if is_invented else str(error)
                click.echo(told if told.startswith(target) else f"{target}: {told}", err=True)
    ctx.exit(_UNDRAFTED if failures else 0)


def _find_uncovered(package: str) -> tuple[str, ...]:
    """Return the gradients in a package's text that no spec names, as targets: functions and op types."""
    # Late imports: reading specs takes a while.
    from gradcheck_cli.spec.load import load

    folders = [path for path in default_paths() if Path(path).exists()]
    cases = load(folders).cases if folders else ()
    named = {
        function.target for case in cases for function in (case.code.forward, case.code.gradient) if function
    }
    named |= {name for case in cases for name in (case.code.op_type, *case.code.covers) if name}
    finds = hooks.ask("find_gradients", package, [str(Path.cwd())], default=())
    bare = dict.fromkeys(
        find.registered or _importable(find.target)
        for find in finds
        if not named & {find.target, _importable(find.target), find.registered}
    )
    click.echo(f"{package}: {len(bare)} of {len(finds)} gradients have no spec", err=True)
    return tuple(bare)


def _importable(target: str) -> str:
    """Return what a spec can name: for a function inside another the outer one, for a call its class."""
    return re.sub(r"\.(__)?call(__)?$", "", target.partition(".<locals>")[0])


def _write_one(drafted: Drafted, options: InitOptions, *, is_next: bool) -> None:
    """Write a draft, and report the result of running it."""
    if options.output == STANDARD_OUTPUT:
        click.echo(("---\n" if is_next else "") + drafted.draft.text(), nl=False)
    else:
        file = _file_for(drafted) if options.output is None else Path(options.output)
        _check(file, options)
        try:
            write_text(file, _modeline(file) + drafted.draft.text())
        except OSError as error:
            raise UsageError(f"{file}: can't be written: {error.strerror}") from error
        click.echo(f"wrote {file}", err=True)
        if drafted.runs:
            click.echo(f"check it: gradcheck run {shlex.quote(str(file))}", err=True)
    if not drafted.is_right:
        click.echo("\n  ".join(drafted.explain()), err=True)


def _draft(target: str, process: DraftingProcess) -> Drafted:
    """Draft the spec of an op type, of a function, or of the function that a gradient belongs to."""
    forward = _GRADIENT.sub("", target)
    if ":" in target and forward != target:
        try:
            return process.draft(forward)
        except CaseFailedError as error:
            if error.kind != "attribute":
                raise
    return process.draft(target)


def _modeline(file: Path) -> str:
    """Name the schema to editors, if what `gradcheck schema` printed lies in its folder or above it."""
    folder = file.absolute().parent
    for above in (folder, *folder.parents):
        if (above / SCHEMA_FILE).is_file():
            path = Path(os.path.relpath(above / SCHEMA_FILE, folder)).as_posix()
            return f"# yaml-language-server: $schema={path}\n"
        if (above / ".git").exists():
            break
    return ""


def _file_for(drafted: Drafted) -> Path:
    """Return the file in the folder that `run` uses by default; the folder is created if it doesn't exist."""
    paths = [Path(path) for path in default_paths()]
    folder = next((path for path in paths if path.is_dir()), None)
    if folder is None:
        folder = next((path for path in paths if not path.suffix and not path.exists()), Path())
        folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{drafted.draft.op}.yaml"


def _check(file: Path, options: InitOptions) -> None:
    if file.exists() and not options.force:
        raise UsageError(f"{file}: exists already; name another file with -o, or write over it with --force")
    if not file.parent.is_dir():
        raise UsageError(f"{file}: there is no folder {file.parent}; make it first")


class DraftingProcess(ExpendableProcess):
    """A process that drafts one spec after another, and is replaced if it dies."""

    def __init__(self) -> None:
        super().__init__(f"{__name__}:answer")

    def draft(self, target: str) -> Drafted:
        """Draft the spec of a function, `module:attribute`, or of an op type.

        Raises:
            CaseFailedError: it doesn't exist.
            GradcheckError: the process dies whatever is left out.
        """
        deadly: set[str] = set()
        while True:
            trying: Any = ""
            try:
                for message in self.ask(target, frozenset(deadly)):
                    trying = message
            except EOFError:
                deadly.add(trying)
                if not trying or len(deadly) > _MOST_DEATHS:
                    raise GradcheckError(
                        f"{target}: the process that tried inputs for it was ended {len(deadly)} times, last "
                        f"by:\n{trying or 'its import'}"
                    ) from None
                continue
            if isinstance(trying, tuple):
                raise CaseFailedError(*trying)
            drafted: Drafted = trying
            return drafted


def answer(tell: Callable[[str], None], target: str, deadly: frozenset[str]) -> object:
    """Return a draft, or why there is none; tell each call before it is tried, and leave out deadly ones."""
    from gradcheck_cli.features.init.drafting import draft

    def may_try(call: str) -> bool:
        if call not in deadly:
            tell(call)
        return call not in deadly

    try:
        return draft(target, may_try)
    except CaseFailedError as error:
        return error.kind, error.message, error.traceback
    except Exception:  # noqa: BLE001 (reported in full to the other end)
        return "internal", traceback.format_exc()
