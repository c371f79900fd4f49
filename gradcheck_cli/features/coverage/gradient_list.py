"""The list of registered gradients as a table, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.text import Text

from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.tensorflow_backend.registry import GradientEntry

SpecsByName = Mapping[str, Sequence[str]]

STYLES = {"gradient": "green", "custom_gradient": "green", "not differentiable": "dim", "none": "dim"}
FIELDS = ("op_type", "status", "function", "file", "line", "origin", "specs")


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
            {**dict(zip(FIELDS, _cells(entry, ()), strict=True)), "specs": list(specs.get(entry.name, ()))}
            for entry in entries
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def gradients_csv(entries: Sequence[GradientEntry], specs: SpecsByName) -> str:
    """Render entries as CSV with a heading; several specs in one cell are separated by blanks."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(FIELDS)
    writer.writerows(_cells(entry, specs.get(entry.name, ())) for entry in entries)
    return stream.getvalue()


def gradients_table(
    entries: Sequence[GradientEntry], specs: SpecsByName | None, *, op_types: int, width: int | None
) -> list[Text]:
    """Lay out entries as a table and a line of counts.

    Args:
        specs: name of an entry -> the specs that cover it; `None` leaves the column out.
        width: columns there are; `None` (a pipe) keeps each entry on one line, for grep.
    """
    rows = [_columns(entry, specs) for entry in entries]
    heading = ["op type", "status", "function", "where"]
    if specs is not None:
        heading.append("specs")
    widths = [max(layout.cells(cell) for cell in column) for column in zip(heading, *rows, strict=True)]
    folds = width is not None and sum(widths) + 2 * (len(widths) - 1) > width
    lines = []
    styles = [STYLES[entry.status] for entry in entries]
    for row, style in [(heading, "bold"), *zip(rows, styles, strict=True)]:
        if not folds:
            padded = [layout.pad(cell, size) for cell, size in zip(row, widths, strict=True)]
            lines.append(Text("  ".join(padded).rstrip(), style=style))
            continue
        # Op type and status come first; the rest goes below if it doesn't fit beside them.
        first = layout.pad(row[0], widths[0]) + "  " + layout.pad(row[1], widths[1])
        parts = [first, *(cell for cell in row[2:] if cell)]
        lines += [
            Text(line.rstrip(), style=style)
            for line in layout.pack(parts, separator="  ", width=width or 0, indent=4)
        ]
    lines.append(Text(_counts(entries, op_types), style="bold"))
    return lines


def _counts(entries: Sequence[GradientEntry], op_types: int) -> str:
    counts = Counter(entry.status for entry in entries)
    parts = [f"{counts[status]:,} {status}" for status in STYLES if counts[status]]
    noun = "entry" if len(entries) == 1 else "entries"
    by_status = f": {', '.join(parts)}" if parts else ""
    return f"{len(entries):,} {noun}{by_status} · {op_types:,} op types in this TensorFlow"


def _columns(entry: GradientEntry, specs: SpecsByName | None) -> list[str]:
    where = f"{entry.file}:{entry.line}" if entry.file else ""
    # The file shows the module: the table has no room for both.
    row = [entry.name, entry.status, entry.function.rpartition(":")[2], where]
    if specs is not None:
        row.append(" ".join(specs.get(entry.name, ())))
    return [layout.clean(cell) for cell in row]


def _cells(entry: GradientEntry, specs: Sequence[str]) -> list[object]:
    cells_of_entry = [entry.name, entry.status, entry.function, entry.file, entry.line or None, entry.origin]
    return [*cells_of_entry, " ".join(specs)]
