"""A chosen point in words: the values that differ from the first sample point, as `--point` takes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import yaml

from gradcheck_cli.errors import UsageError, suggest
from gradcheck_cli.spec.case import Case, InputSpec, Source
from gradcheck_cli.spec.values.arrays import as_lists
from gradcheck_cli.spec.values.draw_values import draw
from gradcheck_cli.spec.yaml_tree import as_flow
from gradcheck_cli.visible import cut, join_first

Array = np.ndarray[Any, Any]
Written = tuple[tuple[str, str], ...]  # what differs, such as `x[2]`, and its value in YAML

REPEAT = "check it there: "  # before the command that checks a case at a point
_WRITTEN = 4  # elements of an input that are written one by one
_SHOWN = 40  # characters of a value in a message
_ELEMENT = re.compile(r"(.+?)\[([\d, ]+)\]")


def describe_point(case: Case, base: Sequence[Array], point: Mapping[int, Array]) -> Written:
    """Return what arguments differ from a base point: elements if they are few, else whole inputs.

    Args:
        base: the values of all inputs.
        point: those that may differ, by the input's index.
    """
    written: list[tuple[str, str]] = []
    for index, value in sorted(point.items()):
        tensor = case.tensors[index]
        if tensor.is_variable:
            continue
        places = [tuple(map(int, place)) for place in np.argwhere(np.asarray(value != base[index]))]
        if np.ndim(value) and len(places) <= _WRITTEN:
            written += [(f"{tensor.name}[{','.join(map(str, at))}]", _value(value[at])) for at in places]
        elif places:
            written.append((tensor.name, _value(value)))
    return tuple(written)


def _value(value: Any) -> str:  # noqa: ANN401 (an array, or a number of one)
    return as_flow(as_lists(np.asarray(value)))


def point_text(written: Written) -> str:
    """Return a point for a message, with long values shortened: `x[2] = 37.2`."""
    return join_first([f"{what} = {_shorten(value)}" for what, value in written], _WRITTEN, "; ")


def _shorten(value: str) -> str:
    try:
        return f"{float(value):.6g}"
    except ValueError:
        return cut(value, _SHOWN)


def point_lines(case: Case, written: Written) -> list[str]:
    """Return the lines that show a point below a finding, and how a command checks the case there."""
    if not written:
        return []
    lines = [f"the point: {point_text(written)}; others as at the sample point"]
    if case.code.given is None and not case.origin.path.startswith("<"):
        point = "; ".join(f"{what}={value}" for what, value in written)
        words = ["gradcheck", "run", case.origin.path, "--op", case.op, "--case", case.name, "--point", point]
        lines.append(REPEAT + " ".join(map(shlex.quote, words)))
    return lines


def at_point(case: Case, text: str) -> Case:
    """Return a case at the first sample point, with some values replaced: nothing is drawn any more.

    Args:
        text: assignments to inputs or elements, joined by semicolons: `x[2]=37.2; y=[1, 2]`.

    Raises:
        UsageError: it names no input, no element of it, or no value that fits.
    """
    values = {tensor.name: np.array(draw(case, tensor, 0)) for tensor in case.tensors}
    tensors = {tensor.name: tensor for tensor in case.tensors}
    for assignment in filter(None, map(str.strip, text.split(";"))):
        what, is_one, value = (part.strip() for part in assignment.partition("="))
        element = None if what in tensors else _ELEMENT.fullmatch(what)
        name = element[1] if element else what
        if not is_one or name not in tensors:
            hint = suggest(name, tensors, "Inputs")
            raise UsageError(
                f"--point: must be INPUT=VALUE or INPUT[INDEX]=VALUE, but got '{assignment}'. {hint}"
            )
        try:
            place = tuple(int(axis) for axis in element[2].split(",")) if element else ...
            values[name][place] = _read(case, tensors[name], value)
        except (ValueError, IndexError, TypeError, yaml.YAMLError) as error:
            shape = list(values[name].shape)
            raise UsageError(
                f"--point: '{assignment}' doesn't fit {name}, of shape {shape}: {error}."
            ) from None
    wanted = replace(case.wanted, point=text)
    return replace(case, arguments=tuple(_fixed(case, values)), wanted=wanted)


def _read(case: Case, tensor: InputSpec, text: str) -> Array:
    value = yaml.safe_load(text)
    shape = np.shape(value)
    return draw(case, replace(tensor, shape=shape, source=Source("value", {"value": value})), 0)


def _fixed(case: Case, values: Mapping[str, Array]) -> Iterable[Any]:
    for argument in case.arguments:
        tensors = tuple(
            replace(
                tensor,
                source=Source("value", {"value": values[tensor.name]}),
                keeps="--point",
                away_from=(),
                min_gap=None,
            )
            for tensor in argument.tensors
        )
        yield replace(argument, tensors=tensors)
