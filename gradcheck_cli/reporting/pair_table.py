"""The pairs of one case as a table for a terminal; computes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from gradcheck_cli.reporting import layout
from gradcheck_cli.results import Status

if TYPE_CHECKING:
    from gradcheck_cli.results import CaseResult, PairResult

VERDICTS = {
    Status.PASSED: ("pass", "green"),
    Status.MISMATCHED: ("MISMATCH", "bold red"),
    Status.INCONCLUSIVE: ("INCONCLUSIVE", "bold yellow"),
    Status.ERROR: ("ERROR", "bold red"),
    Status.SKIPPED: ("skip", "yellow"),
    Status.EXPECTED_MISMATCH: ("expected mismatch", "green"),
    Status.UNEXPECTED_PASS: ("UNEXPECTED PASS", "bold red"),
}
# Blank columns before each number column, and the column's own width: its heading's.
ABS, REL, ALLOWED = "max abs error", "max rel error", "allowed"
NUMBERS_WIDTH = sum(2 + len(heading) for heading in (ABS, REL, ALLOWED))
INDENT = 2
MIN_LABEL = 10
MIN_VERDICT = 14  # two blanks and INCONCLUSIVE


def pair_lines(case: CaseResult, width: int, *, verbose: bool) -> list[Text]:
    """Lay out a case's pairs: a heading, and a row each, in columns where there's room for them.

    Args:
        case: the case.
        width: columns there are.
        verbose: also show methods, counts of evaluations and uncertainties.
    """
    labels = [layout.clean(pair.label) for pair in case.pairs]
    if width < INDENT + MIN_LABEL + NUMBERS_WIDTH + MIN_VERDICT:
        folded = []
        for pair, label in zip(case.pairs, labels, strict=True):
            folded += [*_folded(pair, label, width), *_details(pair, width, verbose=verbose)]
        return folded
    room = width - INDENT - NUMBERS_WIDTH - MIN_VERDICT
    column = max([MIN_LABEL, *(layout.cells(label) for label in labels if layout.cells(label) <= room)])
    heading = f"{'':{INDENT}}{'pair':{column}}  {ABS}  {REL}  {ALLOWED}  verdict"
    lines = [Text(heading, style="dim")]
    for pair, label in zip(case.pairs, labels, strict=True):
        lines += _row(pair, label, column, width)
        lines += _details(pair, width, verbose=verbose)
    return lines


def _row(pair: PairResult, label: str, column: int, width: int) -> list[Text]:
    """Lay out a pair's row; a label wider than its column and a note too long take lines of their own."""
    lines = []
    if layout.cells(label) > column:
        lines.append(Text(" " * INDENT + label))
        label = ""
    row = Text(" " * INDENT + layout.pad(label, column) + _numbers(pair) + "  ")
    word, style = VERDICTS[pair.status]
    row += Text(word, style=style)
    note = _note(pair)
    if note and row.cell_len + 2 + layout.cells(note) <= width:
        row += Text(f"  {note}")
        note = ""
    lines.append(row)
    if note:
        lines += layout.wrap(note, width=width, indent=4)
    return lines


def _folded(pair: PairResult, label: str, width: int) -> list[Text]:
    """Lay out a pair on a terminal too narrow for columns: its verdict, then its numbers by name."""
    word, style = VERDICTS[pair.status]
    lines = [Text(f"  {label}  ") + Text(word, style=style)]
    note = _note(pair)
    if note:
        lines += layout.wrap(note, width=width, indent=4)
    if not pair.connected:
        lines.append(Text("    disconnected"))
    elif pair.status is not Status.SKIPPED and pair.elements and pair.method != "none":
        parts = [
            f"    {ABS} {pair.max_abs_error:.3e}",
            f"{REL} {pair.max_rel_error:.2e}",
            f"{ALLOWED} {pair.allowed:.1e}",
        ]
        lines += [Text(line) for line in layout.pack(parts, separator="  ", width=width, indent=4)]
    return lines


def _numbers(pair: PairResult) -> str:
    if not pair.connected:
        numbers = ("disconnected", "", "")
    elif pair.status is Status.SKIPPED or not pair.elements or pair.method == "none":
        numbers = ("-", "-", "-")
    else:
        numbers = (f"{pair.max_abs_error:.3e}", f"{pair.max_rel_error:.2e}", f"{pair.allowed:.1e}")
    return "".join(
        f"  {number:>{len(heading)}}" for number, heading in zip(numbers, (ABS, REL, ALLOWED), strict=True)
    )


def _note(pair: PairResult) -> str:
    notes = [layout.clean(pair.note)] if pair.note else []
    if pair.wrong_elements and not pair.note:
        notes.append(f"{pair.wrong_elements:,} of {layout.count(pair.elements, 'element')}")
    if pair.kinks:
        notes.append(layout.count(pair.kinks, "kink"))
    if pair.miss_probability is not None and pair.miss_size is not None:
        size = f"{100 * pair.miss_size:g} %"
        notes.append(f"miss probability {pair.miss_probability:.1e} for {size} in one element")
    return ", ".join(notes)


def _details(pair: PairResult, width: int, *, verbose: bool) -> list[Text]:
    lines = []
    if verbose and pair.status is not Status.SKIPPED:
        parts = [
            pair.method,
            pair.reference_dtype,
            layout.count(pair.evaluations, "evaluation"),
            layout.count(pair.elements, "element"),
            f"± {pair.uncertainty:.1e}",
        ]
        packed = layout.pack(parts, separator=" · ", width=width - 4, indent=2)
        lines += [Text(f"    {line}", style="dim") for line in packed]
    if pair.status not in (Status.PASSED, Status.SKIPPED) and pair.worst is not None:
        analytic, numeric = layout.apart(pair.worst.analytic, pair.worst.numeric)
        where = (
            f"{layout.element(pair.output, pair.worst.output_index, pair.worst.output_part)} / "
            f"{layout.element(pair.input, pair.worst.input_index, pair.worst.input_part)}"
        )
        parts = [
            f"    worst: {layout.clean(where)}",
            f"analytic {analytic}",
            f"numeric {numeric} ± {pair.worst.uncertainty:.1e}",
        ]
        lines += [Text(line) for line in layout.pack(parts, separator="   ", width=width, indent=11)]
    for diagnosis in pair.diagnosis:
        lines += layout.wrap(f"diagnosis: {diagnosis}", width=width, indent=4)
    if pair.message:
        lines += layout.wrap(pair.message, width=width, indent=4)
    return lines
