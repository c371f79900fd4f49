"""The list of registered gradients as a table, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from typing import TYPE_CHECKING

from rich.text import Text

from gradcheck_cli.reporting import layout
from gradcheck_cli.spec.coverage import COVERED, EXCEPTED, GONE, MISSING, STATES, UNPROVEN, WORDS, Coverage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gradcheck_cli.tensorflow_backend.registry import GradientEntry

    Covering = Mapping[str, Coverage]

STYLES = {
    "gradient": "green",
    "custom_gradient": "green",
    "not differentiable": "dim",
    "none": "dim",
    "gone": "red",
}
WORD_STYLES = {MISSING: "red", UNPROVEN: "red", GONE: "red", EXCEPTED: "yellow"}
FIELDS = ("op_type", "status", "function", "file", "line", "origin", "specs", "coverage", "inputs", "reason")


def gradients_json(
    entries: Sequence[GradientEntry], specs: Covering, *, tensorflow_version: str, op_types: int
) -> str:
    """Render entries as JSON text.

    Args:
        entries: what to list.
        specs: name of an entry -> what specs say of it; also of entries that aren't listed, to be counted.
        tensorflow_version: TensorFlow's own.
        op_types: how many op types it has in all.

    Returns:
        The text, ending in a newline.
    """
    content = {
        "schema_version": 1,
        "tensorflow_version": tensorflow_version,
        "op_types": op_types,
        "counts": dict(Counter(entry.status for entry in entries)),
        "coverage": _word_counts(specs),
        "gradients": [
            {
                **dict(zip(FIELDS[:6], _cells(entry, Coverage())[:6], strict=True)),
                **_as_object(specs.get(entry.name, Coverage())),
            }
            for entry in entries
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def gradients_csv(entries: Sequence[GradientEntry], specs: Covering) -> str:
    """Render entries as CSV with a heading; several specs in one cell are separated by blanks."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows(_cells(entry, specs.get(entry.name, Coverage())) for entry in entries)
    return stream.getvalue()


def gradients_table(
    entries: Sequence[GradientEntry],
    specs: Covering | None,
    *,
    op_types: int,
    width: int | None,
    counted: bool = True,
) -> list[Text]:
    """Lay out entries as a table and a line of counts.

    Args:
        entries: what to list.
        specs: name of an entry -> what specs say of it, also of entries that aren't listed, to be counted;
            `None` leaves the columns out.
        op_types: how many op types TensorFlow has in all.
        width: columns there are; `None` (a pipe) keeps each entry on one line, for grep.
        counted: whether a line says how many entries specs cover, except and miss.

    Returns:
        The lines.
    """
    rows = [_columns(entry, specs) for entry in entries]
    heading = ["op type", "status", "function", "where"]
    if specs is not None:
        heading += ["coverage", "inputs or reason", "specs"]
    widths = [max(layout.cells(cell) for cell in column) for column in zip(heading, *rows, strict=True)]
    folds = width is not None and sum(widths) + 2 * (len(widths) - 1) > width
    lines = []
    styles = [_style(entry, specs) for entry in entries]
    for row, style in [(heading, "bold"), *zip(rows, styles, strict=True)]:
        if not folds:
            padded = [layout.pad(cell, size) for cell, size in zip(row, widths, strict=True)]
            lines.append(Text("  ".join(padded).rstrip(), style=style))
            continue
        # Op type and status in front, the rest below where it doesn't fit beside them.
        first = layout.pad(row[0], widths[0]) + "  " + layout.pad(row[1], widths[1])
        parts = [first, *(cell for cell in row[2:] if cell)]
        lines += [
            Text(line.rstrip(), style=style)
            for line in layout.pack(parts, separator="  ", width=width or 0, indent=4)
        ]
    lines.append(Text(_counts(entries, op_types), style="bold"))
    if specs is not None and counted:
        counts = _word_counts(specs)
        told = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count or word in _TOLD)
        lines.append(Text(f"specs: {told}", style="bold"))
    return lines


_TOLD = (COVERED, EXCEPTED, MISSING)  # also where there are none


def _style(entry: GradientEntry, specs: Covering | None) -> str:
    word = "" if specs is None else specs.get(entry.name, Coverage()).word
    return WORD_STYLES.get(word, STYLES[entry.status])


def _word_counts(specs: Covering) -> dict[str, int]:
    counts = Counter(coverage.word for coverage in specs.values())
    return {word: counts[word] for word in WORDS} if specs else {}


def _as_object(coverage: Coverage) -> dict[str, object]:
    exception = coverage.exception
    return {
        "specs": list(coverage.specs),
        "coverage": coverage.word or None,
        "inputs": [{"name": one.name, "state": one.state, "reason": one.reason} for one in coverage.inputs],
        "exception": None
        if exception is None
        else {
            "kind": exception.kind,
            "reason": exception.reason,
            "tensorflow": exception.tensorflow,
            "place": exception.place,
        },
    }


def coverage_line(total: int, bare: int, excepted: int = 0) -> str:
    """Say in one line how many of the gradients specs check.

    Args:
        total: how many there are to be checked.
        bare: how many no spec names.
        excepted: how many more there are that can't be checked.
    """
    if not total:
        return "no gradients found; those that a factory makes when it is called can't be seen"
    share = f"{100 * (1 - bare / total):.1f} %"
    noun = "gradient has a spec" if total == 1 else "gradients have a spec"
    besides = f", {excepted:,} more excepted" if excepted else ""
    return f"{total - bare:,} of {total:,} {noun} ({share}){besides}; those that factories make can't be seen"


def _counts(entries: Sequence[GradientEntry], op_types: int) -> str:
    counts = Counter(entry.status for entry in entries)
    parts = [f"{counts[status]:,} {status}" for status in STYLES if counts[status]]
    noun = "entry" if len(entries) == 1 else "entries"
    found = f": {', '.join(parts)}" if parts else ""
    return f"{len(entries):,} {noun}{found} · {op_types:,} op types in this TensorFlow"


def _columns(entry: GradientEntry, specs: Covering | None) -> list[str]:
    where = f"{entry.file}:{entry.line}" if entry.file else ""
    # The file tells the module: the table has no room for both.
    row = [entry.name, entry.status, entry.function.rpartition(":")[2], where]
    if specs is not None:
        coverage = specs.get(entry.name, Coverage())
        row += [coverage.word, _inputs(coverage) or _reason(coverage), " ".join(coverage.specs)]
    return [layout.clean(cell) for cell in row]


def _inputs(coverage: Coverage) -> str:
    """Say what becomes of each input: `a, b gradient; axis not differentiable`."""
    by_state = [(state, [one.name for one in coverage.inputs if one.state == state]) for state in STATES]
    return "; ".join(f"{', '.join(names)} {state}" for state, names in by_state if names)


def _reason(coverage: Coverage) -> str:
    exception = coverage.exception
    return "" if exception is None else f"{exception.kind}: {exception.reason}"


def _cells(entry: GradientEntry, coverage: Coverage) -> list[object]:
    line = entry.line or None
    own = [entry.name, entry.status, entry.function, entry.file, line, entry.origin]
    return [*own, " ".join(coverage.specs), coverage.word, _inputs(coverage), _reason(coverage)]
