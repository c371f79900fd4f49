"""What is known about an op type's inputs without TensorFlow.

It stands in `op_inputs.txt`, which `tests/audit/op_inputs_table.py` writes from the ops' definitions. A line
is `OpType input input|exported:attr=dtype ...`: `exported` is the input's name in `tf.raw_ops` if it differs,
`attr` the type attr that inputs share, and `dtype` the dtype of an input that names none.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_INPUT = re.compile(r"(?P<name>\w+)(\|(?P<exported>\w+))?(:(?P<attr>\w*)=(?P<dtype>\w+))?")


class OpInput(NamedTuple):
    """One input of an op type: the type attr that it shares with others, and its dtype; empty if unknown."""

    attr: str
    dtype: str


def op_inputs(op_type: object, forward: object) -> dict[str, OpInput]:
    """Return an op type's inputs by their names in its definition and in `tf.raw_ops`.

    They are empty if they are unknown, or a forward takes inputs of its own.
    """
    return _definition(op_type) if isinstance(op_type, str) and forward is None else {}


@cache
def _definition(op_type: str) -> dict[str, OpInput]:
    inputs: dict[str, OpInput] = {}
    line = re.search(rf"^{re.escape(op_type)} .+", _read_table(), re.MULTILINE)
    for match in map(_INPUT.fullmatch, line[0].split()[1:] if line else ()):
        if match:
            op_input = OpInput(match["attr"] or "", match["dtype"] or "")
            inputs |= {name: op_input for name in (match["name"], match["exported"]) if name}
    return inputs


@cache
def _read_table() -> str:
    return Path(__file__).with_name("op_inputs.txt").read_text(encoding="utf-8")
