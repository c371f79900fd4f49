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
    name = _choose_name(case)
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


def _choose_name(case: Case) -> str:
    try:
        names = {other.name for other in load_cases([case.origin.path]) if other.op == case.op}
    except GradcheckError:
        names = set()
    return next(name for name in map("found-{}".format, itertools.count(1)) if name not in names)


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
    """Return a file's text with an entry added to the cases of the op at a line; `None` if it isn't plain."""
    op = _mapping_at(text, line)
    if op is None or op.flow_style:
        return None
    lines = text.splitlines(keepends=True)
    if not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    cases = next((value for key, value in op.value if key.value == "cases"), None)
    if cases is None:
        indent = " " * op.start_mark.column
        return _insert(lines, _last_line(op), f"{indent}cases:\n{indent}  - {entry}\n")
    if not isinstance(cases, yaml.SequenceNode):
        return None
    if cases.flow_style:
        end = cases.end_mark.index - 1
        return text[:end] + (", " if cases.value else "") + entry + text[end:]
    indent = " " * cases.start_mark.column
    return _insert(lines, _last_line(cases), f"{indent}- {entry}\n")


def _insert(lines: list[str], after: int, new: str) -> str:
    return "".join([*lines[: after + 1], new, *lines[after + 1 :]])


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


def _last_line(node: yaml.Node) -> int:
    """Return the 0-based line on which a node's last part ends."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        inner = [child for entry in node.value for child in (entry if isinstance(entry, tuple) else (entry,))]
        return max(_last_line(child) for child in inner)
    mark = node.end_mark
    is_block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    return mark.line - 1 if is_block and mark.column == 0 else mark.line
