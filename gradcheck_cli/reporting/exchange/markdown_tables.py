"""Text and tables in Markdown, as GitHub shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gradcheck_cli.reporting.terminal import layout

# GitHub accepts a summary of 1 MiB per step, and drops a longer one completely; a row has at most some 500
# bytes.
MAX_ROWS = 800
# Characters that CommonMark, its tables, or GitHub's references and emoji could interpret; at the start of a
# line, lists and headings too.
_SPECIAL = re.compile(r"[\\`*_\[\]|~#@!]|:(?=[\w+-]+:)|^[-+=]|(?<=^\d)[.)]")


def escape(text: str) -> str:
    """Return text so that Markdown shows it literally, also in a table's cell; lines are broken by `<br>`."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "<br>".join(_SPECIAL.sub(r"\\\g<0>", line) for line in layout.lines_of(plain))


def table_lines(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out a table, followed by an empty line; its cells are Markdown."""
    lines = [f"| {' | '.join(heading)} |", f"|{' --- |' * len(heading)}"]
    lines += limit_rows([f"| {' | '.join(row)} |" for row in rows], "rows")
    return [*lines, ""]


def folded_lines(summary: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay out a table that is collapsed to its summary; nothing without rows."""
    if not rows:
        return []
    return [f"<details><summary>{summary}</summary>", "", *table_lines(heading, rows), "</details>", ""]


def limit_rows(lines: list[str], noun: str) -> list[str]:
    """Cut off what is too long for a summary page, and say how much that is."""
    if len(lines) <= MAX_ROWS:
        return lines
    return [*lines[:MAX_ROWS], "", f"... and {len(lines) - MAX_ROWS:,} more {noun}: see the JSON report."]
