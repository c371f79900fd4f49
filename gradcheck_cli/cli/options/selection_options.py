"""The options that say which cases run, and when a run ends early."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gradcheck_cli.cli import completing
from gradcheck_cli.visible import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gradcheck_cli.gate import Shard
    from gradcheck_cli.spec.case import Case

Function = TypeVar("Function", bound="Callable[..., Any]")

_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")


def _shard(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    match = _SHARD.fullmatch(value.strip())
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= count:
        raise click.BadParameter(f"must be K/N with K from 1 to N, such as 1/4, but got '{value}'.")
    return index, count


cache_option = click.option(
    "--cache-dir",
    "cache",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where past failures and durations are kept. [default: .gradcheck_cache in the project]",
)


def naming_options(function: Function) -> Function:
    """Add the options by which cases are asked for by name, as `choose` reads them."""
    for option in reversed(
        (
            click.option(
                "--op",
                "ops",
                multiple=True,
                metavar="NAME",
                shell_complete=completing.ops,
                help="Check this op only; repeatable.",
            ),
            click.option(
                "--case",
                "names",
                multiple=True,
                metavar="NAME",
                shell_complete=completing.cases,
                help="Check this case only; repeatable.",
            ),
            click.option(
                "-k",
                "expression",
                metavar="EXPR",
                help="Check cases whose path, op and case hold these words, joined by and, or, not and "
                "brackets: -k 'huber and not wide'.",
            ),
            click.option(
                "--tag",
                "tags",
                multiple=True,
                metavar="TAG",
                shell_complete=completing.tags,
                help="Check specs with this tag; repeatable.",
            ),
            click.option(
                "--op-type",
                "op_types",
                multiple=True,
                metavar="TYPE",
                shell_complete=completing.op_types,
                help="Check specs with this op_type, or that cover it; repeatable.",
            ),
        )
    ):
        function = option(function)
    return function


def one_of_several(function: Function) -> Function:
    """Add the options that pick ops and cases of a spec that holds several; `each_case` takes all else."""
    for option in reversed(
        (
            click.option(
                "--op",
                "ops",
                multiple=True,
                metavar="NAME",
                shell_complete=completing.ops,
                help="Which op, where the spec has several; repeatable. [default: all]",
            ),
            click.option(
                "--case",
                "names",
                multiple=True,
                metavar="NAME",
                shell_complete=completing.cases,
                help="Which case, where the op has several; repeatable. [default: all]",
            ),
        )
    ):
        function = option(function)
    return function


def selection_options(function: Function) -> Function:
    """Add the options that `select` reads, and those of a `Stopper`."""
    for option in reversed(
        (
            naming_options,
            click.option(
                "--lf",
                "--last-failed",
                "last_failed",
                is_flag=True,
                help="Check what failed when it last ran; all, if nothing did.",
            ),
            click.option(
                "--ff",
                "--failed-first",
                "failed_first",
                is_flag=True,
                help="Check what failed when it last ran first.",
            ),
            click.option(
                "--changed",
                is_flag=False,
                flag_value="HEAD",
                metavar="[REV]",
                help="Check specs that changed since git's REV, or whose modules did, also those that they "
                "import. [without REV: HEAD, so what isn't committed]",
            ),
            click.option(
                "--shard",
                callback=_shard,
                metavar="K/N",
                help="Check part K of N, balanced by how long cases took before; `gradcheck merge` joins "
                "the reports.",
            ),
            click.option(
                "-x", "--exitfirst", "stop_first", is_flag=True, help="End with the first case that fails."
            ),
            click.option(
                "--max-failures",
                type=click.IntRange(min=1),
                metavar="N",
                help="End with the Nth case that fails.",
            ),
            click.option(
                "--max-time",
                type=click.FloatRange(min=0, min_open=True),
                metavar="SECONDS",
                help="End the run after this long; what it didn't get to is unchecked (exit 3).",
            ),
            click.option("--collect-only", is_flag=True, help="List the cases, and check none."),
            cache_option,
        )
    ):
        function = option(function)
    return function


@dataclass(frozen=True)
class Selected:
    """The cases to run, what to tell of how they were chosen, and the shard that they are."""

    cases: tuple[Case, ...]
    notices: tuple[str, ...] = ()
    shard: Shard | None = None


def select(  # noqa: PLR0913 (one argument per option)
    cases: Sequence[Case],
    cache: Path,
    *,
    ops: Sequence[str],
    names: Sequence[str],
    expression: str | None,
    tags: Sequence[str],
    op_types: Sequence[str],
    last_failed: bool,
    failed_first: bool,
    changed: str | None,
    shard: tuple[int, int] | None,
) -> Selected:
    """Return which of the cases to run.

    What is asked for by name and isn't there is an error (exit 5); what git or the past leave empty isn't:
    there is nothing to check then, and that is fine.
    """
    # Late imports, option by option: git and the reading of modules cost time.
    from gradcheck_cli.running.selection.filters import CaseFilter, choose
    from gradcheck_cli.running.selection.history import failed_before, read_history

    chosen = choose(cases, CaseFilter(names, tags, op_types, expression, ops))
    notices = []
    cut = None
    if last_failed:
        failed = failed_before(chosen, read_history(cache))
        if not failed:
            notices.append("--last-failed: nothing is known to have failed; checking all")
        chosen = failed or chosen
    elif failed_first:
        failed = failed_before(chosen, read_history(cache))
        first = {id(case) for case in failed}
        chosen = (*failed, *(case for case in chosen if id(case) not in first))
    if changed is not None:
        from gradcheck_cli.running.selection.changed import changed_cases

        touched = changed_cases(chosen, changed)
        notices.append(f"--changed {changed}: {len(touched)} of {_cases(len(chosen))} may be touched")
        chosen = touched
    if shard is not None:
        from gradcheck_cli.running.selection.filters import shard_of

        whole = len(chosen)
        chosen, cut = shard_of(chosen, *shard, read_history(cache))
        notices.append(f"shard {shard[0]}/{shard[1]}: {len(chosen)} of {_cases(whole)}")
    return Selected(chosen, tuple(notices), cut)


def narrowing(
    options: Mapping[str, Any], *, stop_first: bool, max_failures: int | None, max_time: float | None
) -> list[str]:
    """Say in words what narrows a run down: the selection's options, and those that end it early."""
    several = (("--op", "ops"), ("--case", "names"), ("--tag", "tags"), ("--op-type", "op_types"))
    words = [f"{option} {value}" for option, key in several for value in options[key]]
    words += [] if options["expression"] is None else [f"-k {options['expression']!r}"]
    words += ["--last-failed"] if options["last_failed"] else []
    words += [] if options["changed"] is None else [f"--changed {options['changed']}"]
    words += [] if options["shard"] is None else ["--shard {}/{}".format(*options["shard"])]
    words += ["-x"] if stop_first else []
    words += [] if max_failures is None else [f"--max-failures {max_failures}"]
    return words if max_time is None else [*words, f"--max-time {max_time:g}"]


def _cases(number: int) -> str:
    return f"{number} case" if number == 1 else f"{number} cases"


def list_cases(cases: Sequence[Case], form: str) -> None:
    """Print which cases would run: a line each, or JSON."""
    if form == "json":
        import json

        content = [
            {
                "op": case.op,
                "case": case.name,
                "spec": case.spec,
                "dtype": case.dtype,
                "tags": list(case.tags),
            }
            for case in cases
        ]
        click.echo(json.dumps({"cases": content}, indent=2, ensure_ascii=False))
        return
    for case in cases:
        click.echo(f"{clean(case.spec)} · {case.op} · {case.name} · {case.dtype}")
    specs = len({case.spec for case in cases})
    click.echo(f"{specs} op{'s'[: specs != 1]} · {_cases(len(cases))}")


def default_cache() -> Path:
    """Return where past runs are remembered: beside the nearest pyproject.toml or repository's top."""
    here = Path.cwd()
    with suppress(OSError):
        for folder in (here, *here.parents):
            if (folder / "pyproject.toml").is_file() or (folder / ".git").exists():
                return folder / ".gradcheck_cache"
    return here / ".gradcheck_cache"
