"""The op that is to blame, and a backward pass op by op, as text that adapts to a width, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.text import Text

from gradcheck_cli import visible
from gradcheck_cli.checking.ops.operation import OpPlace
from gradcheck_cli.features.blame.backward_pass import PassTrace, TensorSummary, TracedOp
from gradcheck_cli.features.blame.path_blame import (
    LISTED,
    Blame,
    PathBlame,
    describe_op,
    gradient_at,
    sentence,
)
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import Status
from gradcheck_cli.serial import plain
from gradcheck_cli.spec.case import Case


def trace_lines(case: Case, passes: Sequence[PassTrace], *, width: int = 80) -> list[Text]:
    """Lay out backward passes."""
    lines: list[Text] = []
    for pass_trace in passes:
        lines += layout.heading(case, _path_name(pass_trace), width=width)
        lines += [line for op in pass_trace.ops for line in _op_lines(op, width)]
        lines += [] if pass_trace.ops else [Text("  no op on the path")]
        notes = pass_trace.notes or ("",) * len(pass_trace.inputs)
        for name, gradient, note in zip(pass_trace.inputs, pass_trace.gradients, notes, strict=True):
            lines += layout.wrap(f"{name} gets {_tensor(gradient)}", width, 2)
            if note:
                lines += layout.wrap(f"^ {note}", width, style="bold red")
        if pass_trace.left_out:
            what = visible.count(pass_trace.left_out, "Identity op")
            lines += layout.wrap(
                f"left out: {what}, which only pass their upstream on (--type Identity)",
                width,
                2,
                style="dim",
            )
    return lines


def _path_name(path: PassTrace | PathBlame) -> str:
    inputs = path.inputs[0] if len(path.inputs) == 1 else f"({', '.join(path.inputs)})"
    return f"d{path.output}/d{inputs}"


def _op_lines(op: TracedOp, width: int) -> list[Text]:
    """Lay out an op: what arrives and what leaves, the place of its gradient, what first appears in it."""
    lines = layout.wrap(f"{op.place.name} ({op.place.type})", width, 2)
    for output, upstream in op.upstreams:
        what = "upstream in" if len(op.upstreams) == 1 else f"upstream in at output {output}"
        lines += layout.wrap(f"{what}: {_tensor(upstream)}", width)
    for (input_index, gradient), local in zip(op.gradients, op.local, strict=True):
        what = "gradient out" if len(op.gradients) == 1 else f"gradient out at input {input_index}"
        suffix = f" (local {_values(local)})" if local is not None else ""
        lines += layout.wrap(f"{what}: {_tensor(gradient)}{suffix}", width)
    place = op.place
    function_text = gradient_at(place.gradient, place.file, place.line) if place.gradient else "none"
    lines += layout.wrap(f"gradient function: {function_text}", width, style="dim")
    for inside in place.inside:
        lines += layout.wrap(f"inside it: {gradient_at(*inside)}", width, style="dim")
    if op.marks:
        marks = " and ".join(op.marks)
        verb = "appears" if len(op.marks) == 1 else "appear"
        lines += layout.wrap(f"^ {marks} first {verb} here", width, style="bold red")
    return lines


def _tensor(summary: TensorSummary | None) -> str:
    """Return a tensor as text: its values if it is small, else shape, norm and range."""
    if summary is None:
        return "None"
    if summary.values is not None:
        return _values(summary.values)
    text = f"{list(summary.shape)} norm {summary.norm:.3e}, {summary.low:.3e} to {summary.high:.3e}"
    if summary.nans:
        text += f", {summary.nans:,} NaN"
    return text + f", {summary.infinities:,} infinite" if summary.infinities else text


def _values(values: object) -> str:
    if isinstance(values, list):
        return f"[{', '.join(_values(value) for value in values)}]"
    if isinstance(values, complex):
        return f"{values.real:.6g}{values.imag:+.6g}j"
    return f"{values:.6g}" if isinstance(values, int | float) else str(values)


def _document(case: Case, **content: object) -> str:
    about = {"op": case.op, "case": case.name, "spec": case.spec, "dtype": case.dtype}
    return json.dumps({"schema_version": 1, **about, **content}, allow_nan=False, ensure_ascii=False) + "\n"


def trace_json(case: Case, passes: Sequence[PassTrace]) -> str:
    """Render backward passes as JSON text; NaN and infinities are strings, complex numbers `[re, im]`."""
    return _document(
        case,
        passes=[
            {
                "output": pass_trace.output,
                "inputs": list(pass_trace.inputs),
                "gradients": {
                    name: plain(gradient)
                    for name, gradient in zip(pass_trace.inputs, pass_trace.gradients, strict=True)
                },
                "notes": dict(zip(pass_trace.inputs, pass_trace.notes, strict=False)),
                "left_out": pass_trace.left_out,
                "ops": [
                    {
                        **place_json(op.place),
                        "upstreams": [
                            {"output": output, "value": plain(upstream)} for output, upstream in op.upstreams
                        ],
                        "gradients": [
                            {"input": input_index, "value": plain(gradient), "local": plain(local)}
                            for (input_index, gradient), local in zip(op.gradients, op.local, strict=True)
                        ],
                        "first": list(op.marks),
                    }
                    for op in pass_trace.ops
                ],
            }
            for pass_trace in passes
        ],
    )


def place_json(place: OpPlace) -> dict[str, object]:
    """Return an op and the place of its gradient as JSON; the gradient is null if there is none."""

    def function(name: str, file: str, line: int) -> dict[str, object] | None:
        return {"function": name, "file": file or None, "line": line or None} if name else None

    return {
        "name": place.name,
        "type": place.type,
        "gradient": function(place.gradient, place.file, place.line),
        "inside": [function(*inside) for inside in place.inside],
    }


STYLES = {Status.PASSED: "green", Status.MISMATCHED: "bold red", Status.INCONCLUSIVE: "bold yellow"}
MAX_OTHERS = 10  # ops in doubt that are listed; JSON has all of them


def blame_lines(case: Case, path_blames: Sequence[PathBlame], *, width: int = 80) -> list[Text]:
    """Lay out the result: a heading and a sentence for each output, and the other ops in doubt."""
    lines: list[Text] = []
    for path_blame in path_blames:
        lines += layout.heading(case, _path_name(path_blame), width=width)
        blame = path_blame.blame
        lines += layout.wrap(f"blame: {sentence(blame)}", width, 2, style=STYLES[blame.status])
        other_ops = [*blame.named[1:], *(blame.undecided if blame.named else blame.undecided[LISTED:])]
        for op in other_ops[:MAX_OTHERS]:
            word = "wrong" if op.status is Status.MISMATCHED else "undecided"
            why = op.evidence if op.status is Status.MISMATCHED else op.reason
            lines += layout.wrap(f"{word} too: {describe_op(op.place)}: {why}", width)
        if len(other_ops) > MAX_OTHERS:
            lines.append(Text(f"    and {len(other_ops) - MAX_OTHERS:,} more; --format json has all"))
        if blame.ops:
            point = f" at sample point {path_blame.sample}" if path_blame.sample else ""
            lines += layout.wrap(f"{_counts(blame)}{point}", width, 2, style="dim")
    return lines


def _counts(blame: Blame) -> str:
    wrong, unsure = len(blame.named), len(blame.undecided)
    return (
        f"{visible.count(len(blame.ops), 'op')} on the way: {len(blame.ops) - wrong - unsure:,} right, "
        f"{wrong:,} wrong, {unsure:,} undecided"
    )


def blame_json(case: Case, path_blames: Sequence[PathBlame], exit_code: int) -> str:
    """Render the result as JSON text, with every op."""
    return _document(
        case,
        exit_code=exit_code,
        paths=[
            {
                "output": path_blame.output,
                "inputs": list(path_blame.inputs),
                "sample": path_blame.sample,
                "status": str(path_blame.blame.status),
                "agrees": path_blame.blame.agrees,
                "named": path_blame.blame.named[0].place.name if path_blame.blame.named else None,
                "message": sentence(path_blame.blame),
                "ops": [
                    {
                        **place_json(op.place),
                        "status": str(op.status),
                        "reason": op.reason,
                        "evidence": op.evidence,
                        "contributes": op.contributes,
                    }
                    for op in path_blame.blame.ops
                ],
            }
            for path_blame in path_blames
        ],
    )
