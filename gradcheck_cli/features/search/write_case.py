"""Adds a counterexample to a spec's file as a case."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import yaml

from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.results import Counterexample
from gradcheck_cli.spec.case import Case
from gradcheck_cli.spec.load import load_cases
from gradcheck_cli.spec.yaml_tree import as_flow


class WriteError(Exception):
    """The reason why a case can't be written; the text contains the case, to be pasted."""


def write_case(case: Case, example: Counterexample) -> str:
    """Add a counterexample to the file of the case that it was found for, and return its name.

    Raises:
        WriteError: the file can't be added to; it is left as it was.
    """
    file = Path(case.origin.path)
    names = {other.name for other in load_cases([file]) if other.op == case.op}
    name = next(name for name in map("found-{}".format, itertools.count(1)) if name not in names)
    entry = as_flow(_entry(case, example, name))
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{error.strerror or error}; the case is {entry}") from error
    changed = _add_entry(text, case.origin.line, entry)
    if changed is None:
        raise WriteError(f"put this under 'cases' yourself: {entry}")
    file.write_text(changed, encoding="utf-8")
    try:
        load_cases([file])
    except GradcheckError as error:
        file.write_text(text, encoding="utf-8")
        raise WriteError(f"put this under 'cases' yourself: {entry}") from error
    return name


def _entry(case: Case, example: Counterexample, name: str) -> dict[str, Any]:
    """Return the case as it appears in a spec, to be merged over the one that it was found for.

    Raises:
        WriteError: an input is part of a structure that can't be merged by name.
    """
    values = {key: {"value": yaml.safe_load(value)} for key, value in example.inputs}
    for key, shape in example.shapes:
        values[key] = {"shape": list(shape), **values[key]}
    inputs: dict[str, Any] = {}
    for argument in case.arguments:
        says = [values.get(tensor.name, {}) for tensor in argument.tensors]
        kinds = {part.kind for part in argument.form.parts}
        if any(says) and argument.form.kind == "tensor":
            inputs[argument.name] = says[0]
        elif any(says) and argument.form.kind == "list" and kinds == {"tensor"}:
            inputs[argument.name] = says
        elif any(says):
            raise WriteError(f"input {argument.name} is a structure; its values are {as_flow(values)}")
    own: dict[str, Any] = {"name": name, "inputs": inputs}
    if case.origin.variant is not None:
        own["dtypes"] = [case.origin.variant]
    return own


def _add_entry(text: str, line: int, entry: str) -> str | None:
    """Return a file's text with an entry before the cases of the op at a line; `None` if it isn't plain."""
    op = _mapping_at(text, line)
    if op is None or op.flow_style:
        return None
    cases = next((value for key, value in op.value if key.value == "cases"), None)
    if cases is None:
        indent = " " * op.start_mark.column
        at, new = op.value[-1][0].start_mark.index, f"cases:\n{indent}  - {entry}\n{indent}"
    elif not isinstance(cases, yaml.SequenceNode):
        return None
    elif cases.flow_style:
        at, new = cases.start_mark.index + 1, entry + (", " if cases.value else "")
    else:
        at, new = cases.start_mark.index, f"- {entry}\n{' ' * cases.start_mark.column}"
    return text[:at] + new + text[at:]


def _mapping_at(text: str, line: int) -> yaml.MappingNode | None:
    """Return the mapping that begins at a 1-based line."""
    waiting: list[Any] = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, yaml.MappingNode):
            if node.start_mark.line + 1 == line and any(key.value == "inputs" for key, _ in node.value):
                return node
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
    return None
