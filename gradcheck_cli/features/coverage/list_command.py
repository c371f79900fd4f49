"""`gradcheck list`: which op types have a gradient, where it is, and which specs cover it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli.options.configured import takes_form
from gradcheck_cli.serial import write
from gradcheck_cli.spec.case import matches

if TYPE_CHECKING:
    from rich.text import Text

    from gradcheck_cli.features.coverage.registry_entries import GradientEntry
    from gradcheck_cli.spec.case import Case

SpecsByName = Mapping[str, Sequence[str]]

STYLES = {"gradient": "green", "custom_gradient": "green", "not differentiable": "dim", "none": "dim"}


@click.command("list")
@click.argument("pattern", required=False)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([*(status.replace(" ", "-") for status in STYLES), "all"]),
    help="List only gradients of this status; repeatable. [default: all but 'none', op types with nothing "
    "registered]",
)
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Import MODULE first, and list what it adds; repeatable.",
)
@click.option(
    "--specs",
    "folder",
    type=click.Path(),
    metavar="DIR",
    help="Show which specs below DIR cover each: a raw op_type, covers, or a function that they name.",
)
@takes_form("json")
def command(
    *, pattern: str | None, statuses: tuple[str, ...], modules: tuple[str, ...], folder: str | None, form: str
) -> None:
    """List the gradients in TensorFlow's registry, and those that --import adds.

    PATTERN is a glob such as '*matmul*', in upper or lower case. A name without * or ? is looked up exactly,
    also among op types without a gradient. `gradcheck run --cov PACKAGE` says which gradients a run has
    checked.
    """
    from importlib.metadata import version

    tensorflow = version("tensorflow")
    specs = None if folder is None else _specs_by_name(folder, tensorflow)
    # Late imports: `list --help` and a bad option shouldn't wait for TensorFlow.
    from gradcheck_cli.running.session import start_tensorflow

    start_tensorflow()
    with redirect_stdout(sys.stderr):  # what an imported module prints isn't part of the list
        from gradcheck_cli.features.coverage.registry_entries import read_gradients
        from gradcheck_cli.tensorflow_backend.op_types import every_op_type

        entries = read_gradients(modules)
    chosen = _choose(entries, pattern, statuses)
    if not chosen:
        from gradcheck_cli.running.selection import suggest_name

        is_name = pattern and not _is_glob(pattern)
        hint = suggest_name(pattern or "", [entry.name for entry in entries]) if is_name else ""
        click.echo(f"nothing matches{f' {pattern!r}' if pattern else ''}.{hint}", err=True)
    op_types = len(every_op_type())
    if form == "json":
        text = gradients_json(chosen, specs or {}, tensorflow_version=tensorflow, op_types=op_types)
        click.echo(text, nl=False)
        return
    from gradcheck_cli.cli.console import print_lines, terminal_width

    width = terminal_width() if sys.stdout.isatty() else None
    print_lines(gradients_table(chosen, specs, op_types=op_types, width=width))


def _specs_by_name(folder: str, version: str) -> dict[str, list[str]]:
    """Return the specs that cover each op type, and each function that they name as forward."""
    from gradcheck_cli.spec.load import load

    cases = load([folder]).cases
    covering = cases_by_type(cases, version)
    for case in cases:
        if case.code.forward is not None:
            covering.setdefault(case.code.forward.target, []).append(case)
    return {name: list(dict.fromkeys(case.spec for case in own)) for name, own in covering.items()}


def cases_by_type(cases: Iterable[Case], version: str) -> dict[str, list[Case]]:
    """Return the cases that cover each op type, among those for a version of TensorFlow.

    A case covers the op types of its `covers`, and a raw `op_type` itself.
    """
    from gradcheck_cli.spec.case import version_fits

    by_type: dict[str, list[Case]] = {}
    for case in cases:
        if not version_fits(version, case.running.tensorflow):
            continue
        own = (str(case.code.op_type),) if case.code.is_raw_op else ()
        for op_type in dict.fromkeys((*own, *case.code.covers)):
            by_type.setdefault(op_type, []).append(case)
    return by_type


def _is_glob(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern


def _choose(
    entries: Sequence[GradientEntry], pattern: str | None, statuses: Sequence[str]
) -> list[GradientEntry]:
    chosen = set(STYLES)
    if statuses and "all" not in statuses:
        chosen = {status.replace("-", " ") for status in statuses}
    elif not statuses and (pattern is None or _is_glob(pattern)):
        chosen.discard("none")
    glob = (pattern or "*").lower()
    return [entry for entry in entries if entry.status in chosen and matches(glob, entry.name.lower())]


def gradients_json(
    entries: Sequence[GradientEntry], specs: SpecsByName, *, tensorflow_version: str, op_types: int
) -> str:
    """Render entries, each with the specs that cover it, as JSON text that ends in a newline."""
    content = {
        "schema_version": 1,
        "tensorflow_version": tensorflow_version,
        "op_types": op_types,
        "counts": dict(Counter(entry.status for entry in entries)),
        "gradients": [
            {"op_type": name, **facts, "line": facts["line"] or None, "specs": list(specs.get(name, ()))}
            for name, facts in ((facts.pop("name"), facts) for facts in map(asdict, entries))
        ],
    }
    return write(content)


def gradients_table(
    entries: Sequence[GradientEntry], specs: SpecsByName | None, *, op_types: int, width: int | None
) -> list[Text]:
    """Lay out entries as a table and a line of counts.

    Args:
        specs: name of an entry -> the specs that cover it; `None` leaves the column out.
        width: columns there are, the place and the specs go below where they don't fit; `None` (a pipe)
            keeps each entry on one line, for grep.
    """
    # Late imports: `list --help` shouldn't wait for them.
    from rich.text import Text

    from gradcheck_cli.reporting.terminal import layout

    rows = [["op type", "status", "function", "where", "specs"]]
    for entry in entries:
        where = f"{entry.file}:{entry.line}" if entry.file else ""
        own = " ".join((specs or {}).get(entry.name, ()))
        # The file shows the module: the table has no room for both.
        row = entry.name, entry.status, entry.function.rpartition(":")[2], where, own
        rows.append(list(map(layout.clean, row)))
    rows = [row[: 4 if specs is None else None] for row in rows]
    styles = ["bold", *(STYLES[entry.status] for entry in entries)]
    firsts = layout.align([row[:3] for row in rows], 3)
    lines = [
        Text(line.rstrip(), style=style)
        for first, row, style in zip(firsts, rows, styles, strict=True)
        for line in layout.pack(
            [first, *filter(None, row[3:])], separator="  ", width=width or sys.maxsize, indent=4
        )
    ]
    counts = Counter(entry.status for entry in entries)
    by_status = ", ".join(f"{counts[status]:,} {status}" for status in STYLES if counts[status])
    noun = "entry" if len(entries) == 1 else "entries"
    text = (
        f"{len(entries):,} {noun}{by_status and ': '}{by_status} · {op_types:,} op types in this TensorFlow"
    )
    return [*lines, Text(text, style="bold")]
