"""One pair as `show` shows it: checked as in a run, then as text, JSON with all elements, or blocks."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gradcheck_cli import visible
from gradcheck_cli.checking.checks.all_checks import FORM
from gradcheck_cli.checking.ops.operation import Float, TensorInfo, name_element
from gradcheck_cli.checking.pairs.pair import PairSample
from gradcheck_cli.checking.verdicts.summary import RANK, Findings
from gradcheck_cli.errors import CaseFailedError, UsageError
from gradcheck_cli.numerics import Verdict
from gradcheck_cli.numerics.precision import place_of_largest
from gradcheck_cli.reporting.codes import code_for
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.reporting.terminal.pair_table import verdict_text
from gradcheck_cli.results import FAILING, UNDECIDED, CaseResult, CheckResult, PairResult, Status
from gradcheck_cli.running.session import check, run_case, start_tensorflow, user_code
from gradcheck_cli.serial import plain
from gradcheck_cli.spec.case import Case, PairRule, stated_rule

Matrix = npt.NDArray[np.inexact]

_SKIP = "skip"
MAX_ROWS = 24  # a terminal's height; two matrices of this size still fit on one screen with scrolling
MAX_DIFFERENCES = 10
_WORDS = {
    Verdict.PASS: "pass",
    Verdict.KINK: "kink",
    Verdict.MISMATCH: "MISMATCH",
    Verdict.INCONCLUSIVE: "INCONCLUSIVE",
}


# The pair.


@dataclass(frozen=True)
class PairView:
    """One pair at one sample point, with every element's verdict and the result of the whole run."""

    label: str  # `dOUT/dIN`
    output: TensorInfo  # the output that is differentiated
    input_info: TensorInfo  # the input that it is differentiated by
    point: int  # index of the sample point
    sample: PairSample  # every element, packed: real parts before imaginary ones, in rows and in columns
    result: PairResult  # the pair's own result, over all points, with the spec's expectation applied
    failing: tuple[CheckResult, ...] = ()  # the structural checks of its case that fail
    warnings: tuple[str, ...] = ()  # the case's warnings about the pair

    @property
    def parts(self) -> tuple[str, ...]:
        """The upstreams that rows belong to: 1, and 1j where the output is complex."""
        return ("1", "1j") if self.output.is_complex else ("1",)

    def rows(self, index: tuple[int, ...] | None, part: str | None = None) -> npt.NDArray[np.int64]:
        """Return the packed rows of one or all elements of the output, for one or all upstreams."""
        size = self.output.size
        elements = np.arange(size)
        if index:
            elements = np.array([np.ravel_multi_index(index, self.output.shape)])
        starts = [part_index * size for part_index, name in enumerate(self.parts) if part in {None, name}]
        return np.concatenate([start + elements for start in starts])

    def join_parts(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.inexact]:
        """Combine real and imaginary columns as TensorFlow writes gradients: dL/dRe + i dL/dIm."""
        if not self.input_info.is_complex:
            return values
        complex_values: npt.NDArray[np.inexact] = (
            values[:, : self.input_info.size] + 1j * values[:, self.input_info.size :]
        )
        return complex_values


def pair_view(case: Case, label: str | None) -> PairView:
    """Check a case, and return one of its pairs at the sample point that shows most.

    Args:
        case: the case.
        label: the pair's; `None` for the only one.

    Raises:
        UsageError: there is no such pair, or there are several.
        CaseFailedError: the case can't be checked, or its gradient has no Jacobian to show.
    """
    start_tensorflow()
    with user_code(case):
        findings = check(case, explains=False)
        if label is None:
            label, *others = [pair.label for pair in findings.pairs] or [""]
            if others:
                labels = ", ".join((label, *others))
                raise UsageError(f"{case.op} has several pairs: {labels}. Name one: --pair {label}")
        if label in {pair.label for pair in findings.pairs} and not _is_whole(findings, label):
            # It may be skipped by its spec, or too large to be judged whole unless someone asks for it.
            rules = (*case.expected.pairs, PairRule("*", _SKIP), _rule_without_skip(case, label))
            asked = replace(
                case,
                expected=replace(case.expected, pairs=rules),
                judging=replace(case.judging, method="full"),
            )
            findings = check(asked, explains=False)
    result = next((pair for pair in findings.pairs if pair.label == label), None)
    failing = tuple(own for own in findings.checks if own.status in FAILING | UNDECIDED)
    if result is None and findings.pairs:
        labels = ", ".join(pair.label for pair in findings.pairs)
        raise UsageError(f"--pair: no pair {label!r}; there are {labels}.")
    if result is None or label not in findings.judged:
        message = failing[0].message if failing else ""
        message = message if result is None else result.message
        raise CaseFailedError("pairs", message or "there is nothing to differentiate.")
    if result.mismatch == FORM:  # zeros replace it, and nobody's gradient would be shown
        raise CaseFailedError("gradient", result.message)
    judged = findings.judged[label]
    point = _index_to_show(judged.samples)
    return PairView(
        label,
        judged.output,
        judged.input_info,
        point,
        judged.samples[point].whole(),
        result,
        failing,
        tuple(warning for warning in findings.warnings if f" {label}:" in warning),
    )


def _rule_without_skip(case: Case, label: str) -> PairRule:
    """Return the spec's rule for a pair, without its `skip`."""
    rule = stated_rule(case.expected.pairs, label) or PairRule(label, "")
    return replace(rule, glob=label, expect="" if rule.expect == _SKIP else rule.expect)


def _is_whole(findings: Findings, label: str) -> bool:
    """Whether a pair was judged element by element; one of wrong form has no elements at all."""
    if label in findings.judged:
        judged = findings.judged[label]
        return judged.samples[_index_to_show(judged.samples)].rows is None
    return all(pair.status is not Status.SKIPPED for pair in findings.pairs if pair.label == label)


def draw_pair(case: Case, label: str) -> CaseResult:
    """Check a case, and return its result with only one pair, drawn.

    Raises:
        UsageError: there is no such pair.
        CaseFailedError: the case can't be checked.
    """
    start_tensorflow()
    wanted = replace(case.wanted, figures_of=label, records_fingerprint=False)
    result = run_case(replace(case, wanted=wanted))
    if result.error is not None:
        raise CaseFailedError(result.error.kind, result.error.message, result.error.traceback)
    pairs = [pair for pair in result.pairs if pair.label == label]
    if not pairs:
        labels = ", ".join(pair.label for pair in result.pairs) or "none"
        raise UsageError(f"--pair: no pair {label!r}; there are {labels}.")
    return replace(result, pairs=tuple(pairs))


# Its Jacobian.


def _index_to_show(samples: Sequence[PairSample]) -> int:
    """Return the index of the point to show: the first with a mismatch, else the first undecided, else 0."""
    ranks = [2 if sample.is_wrong else 0 if sample.is_right else 1 for sample in samples]
    return ranks.index(max(ranks))


def jacobian_json(case: Case, view: PairView, index: tuple[int, ...] | None = None) -> str:
    """Render a pair's Jacobian, or the row of one output element, as JSON text; nothing is elided.

    Args:
        index: the output element whose row is requested, shaped like the input; `None` for all rows.

    Returns:
        The text, ending in a newline; complex numbers are `[re, im]`. Rows are those for an upstream of 1;
        for a complex output, those for 1j are under `imaginary`.
    """
    whole: list[dict[str, object]] = [
        {name: plain(_matrix(view, values, index, part).tolist()) for name, values in _arrays(view).items()}
        | {"verdict": _words(view, index, part)}
        for part in view.parts
    ]
    content = {
        "op": case.op,
        "case": case.name,
        "spec": case.spec,
        "dtype": case.dtype,
        "label": view.label,
        "output": view.output.name,
        "input": view.input_info.name,
        "output_shape": list(view.output.shape),
        "input_shape": list(view.input_info.shape),
        "output_index": None if index is None else list(index),
        "numeric_dtype": view.result.judged_by.reference_dtype,
        "sample": view.point,
        "status": str(view.result.status),
        "message": view.result.message,
        "checks": plain(list(view.failing)),
        "warnings": list(view.warnings),
        **whole[0],
        "imaginary": whole[1] if len(whole) > 1 else None,
    }
    return json.dumps(content, allow_nan=False) + "\n"


def _arrays(view: PairView) -> dict[str, Float]:
    return {name: getattr(view.sample, name) for name in ("analytic", "numeric", "uncertainty", "allowed")}


def _words(view: PairView, index: tuple[int, ...] | None, part: str) -> object:
    """Return every element's verdict; for a complex element that of its worse part."""
    codes = view.sample.verdict[view.rows(index, part)]
    if view.input_info.is_complex:
        codes = np.stack(np.split(codes, 2, axis=1))
        codes = np.take_along_axis(codes, np.argmax(RANK[codes], axis=0)[None], axis=0)[0]
    words = np.array([Verdict(code).name.lower() for code in range(len(Verdict))])[codes]
    return (words if index is None else words.reshape(view.input_info.shape)).tolist()


def jacobian_text(
    case: Case, view: PairView, index: tuple[int, ...] | None = None, *, width: int = 80
) -> str:
    """Render a pair's Jacobian, or the row of one output element, as text.

    Args:
        index: the output element whose row is requested, shaped like the input; `None` for all rows.
        width: columns there are; rows and columns that don't fit are left out, with a notice.

    Returns:
        The text: a heading, the analytic values, the numeric ones, which elements don't simply pass, and what
            `run` says about the pair.
    """
    title, output = view.label, view.output.name
    if index is not None:
        title = f"d{layout.element(output, index)}/d{view.input_info.name}"
    judged_in = view.result.judged_by.reference_dtype
    dtype = case.dtype if judged_in == case.dtype else f"{case.dtype} (in {judged_in})"
    point = f"sample point {view.point}" if view.point else ""
    shapes = f"{output} {view.output.shape}, {view.input_info.name} {view.input_info.shape}"
    heading = layout.heading(case, point, f"{title}  ({shapes})", width=width, dtype=dtype)
    lines = [line.plain for line in heading]
    for part in view.parts:
        suffix = "" if len(view.parts) == 1 else f", upstream {part}"
        for name in ("analytic", "numeric"):
            lines.append(name + suffix)
            values, named = _matrix(view, getattr(view.sample, name), index, part), view.input_info.name
            if index is None:
                values, named = values.reshape(*view.output.shape, values.shape[1]), output
            lines += _matrix_lines(values, named, width)
    lines += _element_lines(view, index, width)
    return "".join(f"{layout.clean(line)}\n" for line in [*lines, *_verdict_lines(view, width)])


def _matrix(view: PairView, values: Float, index: tuple[int, ...] | None, part: str) -> Matrix:
    """Return the rows of one upstream, or one of them in the input's shape."""
    joined = view.join_parts(values[view.rows(index, part)])
    if values is view.sample.uncertainty or values is view.sample.allowed:
        joined = np.abs(joined)
    return joined if index is None else joined.reshape(view.input_info.shape)


ALL = "--format json has all"


def _matrix_lines(values: Matrix, name: str, width: int) -> list[str]:
    """Lay out values in lines along their last axis, each with its place in those before."""
    matrix = values.reshape(math.prod(values.shape[:-1]), *values.shape[-1:] or (1,))
    rows, columns = matrix.shape
    if not values.size:
        return ["  (no elements)"]
    places = itertools.islice(np.ndindex(values.shape[:-1]), MAX_ROWS)
    names = [layout.element(name, place) if place else "" for place in places]
    margin = 2 + max(map(layout.cells, names))
    # No column is narrower than two blanks and a digit, so more columns than this never fit.
    texts = [[_short(value) for value in row[: width // 3]] for row in matrix[:MAX_ROWS]]
    wide = 2 + max(len(text) for row in texts for text in row)
    is_whole = margin + columns * wide <= width
    shown = columns if is_whole else max(1, (width - margin - 3) // wide)
    lines = [
        f"  {layout.pad(own, margin - 2)}{''.join(f'{text:>{wide}}' for text in row[:shown])}"
        + ("" if is_whole else "  …")
        for own, row in zip(names, texts, strict=True)
    ]
    left = {"rows": (rows - len(texts), rows), "columns": (columns - shown, columns)}
    elided = [f"{count} of {whole} {what}" for what, (count, whole) in left.items() if count]
    return [*lines, f"  elided: {', '.join(elided)}; {ALL}"] if elided else lines


def _element_lines(view: PairView, index: tuple[int, ...] | None, width: int) -> list[str]:
    """List the elements that don't simply pass, the gravest first, with the allowed error."""
    rows = view.rows(index)
    arrays = {name: values[rows] for name, values in _arrays(view).items()}
    verdict = view.sample.verdict[rows]
    error = np.abs(
        np.where(arrays["analytic"] == arrays["numeric"], 0.0, arrays["analytic"] - arrays["numeric"])
    )
    if (verdict == Verdict.PASS).all():
        if not error.size:
            return ["no elements"]
        largest = place_of_largest(error)
        allowed = (arrays["allowed"] + arrays["uncertainty"])[largest]
        return [f"equal: the largest difference is {error[largest]:.3e}, where {allowed:.1e} is allowed"]
    places = np.argwhere(verdict != Verdict.PASS)
    size = np.nan_to_num(error[verdict != Verdict.PASS], nan=np.inf, posinf=np.inf)
    order = np.lexsort((-size, -RANK[verdict[verdict != Verdict.PASS]]))
    counts = [
        f"{element_count:,} {_WORDS[code]}"
        for code in Verdict
        if (element_count := int(np.count_nonzero(verdict == code)))
    ]
    lines = [f"of {visible.count(verdict.size, 'element')}: {', '.join(counts)}"]
    for row, column in places[order[:MAX_DIFFERENCES]]:
        first, second = layout.format_distinctly(
            arrays["analytic"][row, column].item(), arrays["numeric"][row, column].item()
        )
        where = f"{name_element(int(rows[row]), view.output)} / {name_element(column, view.input_info)}"
        parts = [
            f"  {where}",
            f"analytic {first}",
            f"numeric {second} ± {arrays['uncertainty'][row, column]:.1e}",
            f"difference {error[row, column]:.3e}",
            f"allowed {arrays['allowed'][row, column]:.1e}",
            _WORDS[verdict[row, column]],
        ]
        lines += layout.pack(parts, separator="   ", width=width, indent=6)
    if len(places) > MAX_DIFFERENCES:
        lines.append(f"  elided: {len(places) - MAX_DIFFERENCES:,} smaller ones; {ALL}")
    return lines


def _verdict_lines(view: PairView, width: int) -> list[str]:
    """Say what `run` says about the pair, over all sample points, and about its case if that fails."""
    result = view.result
    said = verdict_text(result.status, code_for(result)).plain
    messages = [f"run: {said}" + (f"  {result.note}" if result.note else "")]
    if not result.connected:
        messages.append("the gradient is None (disconnected): zeros stand for it here")
    messages += [text for text in (result.message, *view.warnings) if text]
    messages += [
        f"check {check.name}: {verdict_text(check.status, code_for(check)).plain}: {check.message}"
        for check in view.failing
    ]
    return [
        line.plain
        for index, text in enumerate(messages)
        for line in layout.wrap(text, width, 2 if index else 0)
    ]


def _short(value: np.inexact) -> str:
    """Format an element in six digits; `0` for zero of either sign."""
    if value == 0:
        return "0"
    item = value.item()
    if isinstance(item, complex):
        return f"{item.real:.6g}{item.imag:+.6g}j"
    return f"{item:.6g}"
