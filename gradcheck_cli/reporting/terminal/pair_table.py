"""The pairs of one case as a table for a terminal; computes nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.text import Text

from gradcheck_cli import visible
from gradcheck_cli.reporting.codes import Code, code_for
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import CaseResult, PairResult, Status, WorstElement
from gradcheck_cli.spec.values.points import REPEAT

VERDICTS = {
    Status.PASSED: ("pass", "green"),
    Status.MISMATCHED: ("MISMATCH", "bold red"),
    Status.INCONCLUSIVE: ("INCONCLUSIVE", "bold yellow"),
    Status.ERROR: ("ERROR", "bold red"),
    Status.SKIPPED: ("skip", "yellow"),
    Status.IGNORED: ("ignored", "yellow"),
    Status.KNOWN: ("known", "yellow"),
    Status.EXPECTED_MISMATCH: ("expected mismatch", "green"),
    Status.UNEXPECTED_PASS: ("UNEXPECTED PASS", "bold red"),
}
# The columns all concern one element, the worst: its error, the allowed error, and their ratio.
NUMBERS = ("error", "allowed", "ratio")
_WIDTHS = (len("disconnected"), len("1.0e-300"), len("1.0e-300"))  # of their columns, two blanks before each
NUMBERS_WIDTH = sum(2 + width for width in _WIDTHS)
# An error larger than this is described by its ratio.
_MAX_RELATIVE = 10.0
INDENT = 2
MIN_LABEL = 10
MIN_VERDICT = 14  # two blanks and INCONCLUSIVE
# Of more pairs than this, a table says once what probes may have missed, of the pair of which they may most.
_MOST_POWERS = 8


def verdict_text(status: Status, code: Code | None) -> Text:
    """Return the word for a verdict, with the number that `gradcheck explain` takes."""
    word, style = VERDICTS[status]
    text = Text().append(word, style=style)
    return text if code is None else text.append(f" {code.number}", style=style.removeprefix("bold "))


def pair_lines(case: CaseResult, width: int, *, verbose: bool) -> list[Text]:
    """Lay out a case's pairs: a heading and a row each, in columns."""
    labels = [layout.clean(pair.label) for pair in case.pairs]
    verdicts = [verdict_text(pair.status, code_for(pair)) for pair in case.pairs]
    messages = _shorten_repeated([pair.message for pair in case.pairs])
    blames: set[str] = set()
    beside_label = INDENT + NUMBERS_WIDTH + max(MIN_VERDICT, *(2 + verdict.cell_len for verdict in verdicts))
    fitting = [cells for cells in map(layout.cells, labels) if cells <= width - beside_label]
    widest = max([len("pair"), *fitting])
    powers = [_power(pair) for pair in case.pairs]
    is_said_once = not verbose and len(list(filter(None, powers))) > _MOST_POWERS
    notes = [
        ", ".join(filter(None, (_note(pair), "" if is_said_once else power)))
        for pair, power in zip(case.pairs, powers, strict=True)
    ]
    # Slightly fewer blanks after the labels, so that a note fits beside its verdict.
    beside = [
        INDENT + NUMBERS_WIDTH + 2 + verdict.cell_len + 2 + layout.cells(note)
        for note, verdict in zip(notes, verdicts, strict=True)
    ]
    room = min((width - cells for cells in beside if cells + widest <= width), default=MIN_LABEL)
    column = max(widest, min(MIN_LABEL, room))
    heading = f"{'':{INDENT}}{'pair':{column}}{_columns(NUMBERS)}  verdict"
    lines = [Text(heading, style="dim")]
    for pair, label, verdict, note, message in zip(
        case.pairs, labels, verdicts, notes, messages, strict=True
    ):
        is_wide = layout.cells(label) > column  # such a label gets its own line
        lines += [Text(" " * INDENT + label)] if is_wide else []
        beginning = " " * INDENT + layout.pad("" if is_wide else label, column)
        row = Text(f"{beginning}{_columns(number_cells(pair))}  ") + verdict
        told = pair.cause.diagnosis
        diagnoses = ["blame: see above" if diagnosis in blames else diagnosis for diagnosis in told]
        blames |= {diagnosis for diagnosis in told if diagnosis.startswith("blame: ")}
        details = _details(pair, diagnoses, message, width, verbose=verbose)
        lines += [*_with_note(row, note, width), *details]
    if is_said_once:
        weakest = max(filter(_power, case.pairs), key=lambda pair: pair.judged_by.miss_probability or 0.0)
        text = f"{_power(weakest, 'at most ')} ({weakest.label}); -v says each"
        lines += layout.wrap(text, width, INDENT)
    return lines


_NUMBER = re.compile(r"\d[\d.e+-]*")


def _shorten_repeated(messages: Sequence[str]) -> list[str]:
    """Leave out what a message explains after its colon, if one with other numbers explains the same."""
    said: set[str] = set()
    shown = []
    for message in messages:
        what, _, explanation = message.partition(": ")
        form = _NUMBER.sub("#", message)
        shown.append(f"{what} (see above)" if explanation and form in said else message)
        said.add(form)
    return shown


def _with_note(row: Text, note: str, width: int) -> list[Text]:
    """Lay out a pair's row and its note, which gets its own lines if it is too long."""
    if note and row.cell_len + 2 + layout.cells(note) <= width:
        return [row + Text(f"  {note}")]
    return [row, *layout.wrap(note, width)] if note else [row]


def number_cells(pair: PairResult) -> Sequence[str]:
    """Return a pair's cells in the columns `NUMBERS` of a table."""
    if not pair.connected:
        return "disconnected", "", ""
    if pair.status is Status.SKIPPED or not pair.numbers.elements or pair.judged_by.method == "none":
        return "-", "-", "-"
    return list(named_numbers(pair).values())


def _columns(texts: Sequence[str]) -> str:
    return "".join(f"  {text:>{width}}" for text, width in zip(texts, _WIDTHS, strict=True))


def named_numbers(pair: PairResult) -> dict[str, str]:
    """Return the numbers of a pair's worst element in a table, by the names of its columns."""
    ratio = "-" if pair.ratio is None else f"{pair.ratio:.1e}"
    return dict(zip(NUMBERS, (f"{pair.error:.3e}", f"{pair.bound:.1e}", ratio), strict=True))


def worst_element(pair: PairResult, worst: WorstElement) -> tuple[str, str, str]:
    """Return where a pair's worst element is, its analytic value, and its numeric one, as text."""
    analytic, numeric = layout.format_distinctly(worst.analytic, worst.numeric)
    output = layout.element(pair.output, worst.output_index, worst.output_part)
    where = f"{output} / {layout.element(pair.input, worst.input_index, worst.input_part)}"
    return where, f"analytic {analytic}", f"numeric {numeric} ± {worst.uncertainty:.1e}"


def is_plain(pair: PairResult) -> bool:
    """Whether each element was decided by the plain comparison with differences."""
    return set(pair.numbers.decided_by) <= {"plainly"}


def describe_rules(pair: PairResult) -> str:
    """Say which rules decided a pair's elements, such as `34 elements: 30 plainly, 4 at a kink`."""
    total = visible.count(sum(pair.numbers.decided_by.values()), "element")
    return f"{total}: {', '.join(f'{count:,} {words}' for words, count in pair.numbers.decided_by.items())}"


def _note(pair: PairResult) -> str:
    notes = [layout.clean(pair.note)] if pair.note else []
    if pair.numbers.wrong_elements and not pair.note:
        notes.append(f"{pair.numbers.wrong_elements:,} of {visible.count(pair.numbers.elements, 'element')}")
    if pair.numbers.kinks:
        notes.append(visible.count(pair.numbers.kinks, "kink"))
    return ", ".join(notes)


def _power(pair: PairResult, at_most: str = "") -> str:
    """Say with which probability probes miss an error of which size, if the pair was probed."""
    if pair.judged_by.miss_probability is None or pair.judged_by.miss_size is None:
        return ""
    size = f"{100 * pair.judged_by.miss_size:g} %"
    return f"miss probability {at_most}{pair.judged_by.miss_probability:.1e} for {size} in one element"


def _details(
    pair: PairResult, diagnoses: Sequence[str], message: str, width: int, *, verbose: bool
) -> list[Text]:
    lines = []
    if verbose and pair.status is not Status.SKIPPED:
        parts = [
            pair.judged_by.method,
            pair.judged_by.reference_dtype,
            visible.count(pair.judged_by.evaluations, "evaluation"),
            visible.count(pair.numbers.elements, "element") if is_plain(pair) else describe_rules(pair),
            f"± {pair.numbers.uncertainty:.1e}",
            f"max abs error {pair.numbers.max_abs_error:.3e}",
            f"max rel error {pair.numbers.max_rel_error:.2e}",
        ]
        packed = layout.pack(parts, separator=" · ", width=width - 4, indent=2)
        lines += [Text(f"    {line}", style="dim") for line in packed]
    if pair.judged_by.not_float64:
        dtype = pair.judged_by.reference_dtype
        but_a_part = ", but for a part" if dtype == "float64" else ""
        judged = f"judged in {layout.clean(dtype)}{but_a_part}: {layout.clean(pair.judged_by.not_float64)}"
        lines += layout.wrap(judged, width)
    worst = pair.numbers.worst
    if pair.status not in (Status.PASSED, Status.SKIPPED, Status.UNEXPECTED_PASS) and worst is not None:
        where, *values = worst_element(pair, worst)
        parts = [f"    worst: {layout.clean(where)}", *values]
        if pair.relative_error is not None and pair.relative_error < _MAX_RELATIVE:
            parts.append(f"off by {100 * pair.relative_error:.3g} %")
        lines += [Text(line) for line in layout.pack(parts, separator="   ", width=width, indent=11)]
    for diagnosis in diagnoses:
        if diagnosis.startswith(REPEAT):  # a shell takes a broken line for two commands
            lines.append(Text(f"    {layout.clean(diagnosis)}"))
        else:
            lines += layout.wrap(f"diagnosis: {diagnosis}", width)
    if message:
        lines += layout.wrap(message, width)
    return lines
