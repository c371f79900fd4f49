"""How far the numbers in a Python condition are from making it true, and from making it false.

Conditions are those of `if` and `while`, of `a if c else b` and `np.where(c, a, b)`, and masks: `y[x < 0]`.

The parts that are compared are evaluated in the frame, just before the condition's line runs. They may
contain only what has no side effect: names, numbers, arithmetic, indexing, and calls of a few functions that
reduce or convert.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

_PURE = frozenset(
    {"sum", "max", "min", "mean", "any", "all", "abs", "float", "int", "len", "bool", "norm", "prod", "dot"}
    | {"sqrt", "absolute", "exp", "log", "var", "std", "ravel", "reshape", "amax", "amin", "isclose", "item"}
)
_SIMPLE = (
    *(ast.Expression, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Attribute, ast.Subscript),
    *(ast.Slice, ast.Tuple, ast.Compare, ast.BoolOp, ast.operator, ast.unaryop, ast.cmpop, ast.boolop),
)
_ORDERED = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq)
_ABOVE, _BELOW = (ast.Gt, ast.GtE), (ast.Lt, ast.LtE)
Margins = tuple[float, float]  # of being true, of being false


@dataclass(frozen=True)
class PythonCondition:
    """A condition.

    Attributes:
        margins: from a frame to how far it is on either side; positive on that side.
        truths: from a frame to whether some element is true, and whether some is false.
        constants: the numbers in it.
    """

    margins: Callable[[Any], Margins]
    truths: Callable[[Any], tuple[bool, bool]]
    constants: tuple[float, ...]


def condition_of(test: ast.expr) -> PythonCondition | None:
    """Read a condition; `None` if its parts may not be evaluated twice."""
    if not all(_is_pure(node) for node in ast.walk(test)):
        return None
    constants = [
        float(node.value)
        for node in ast.walk(test)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    ]
    value = _value_of(test)

    def truths(frame: Any) -> tuple[bool, bool]:
        truth = np.asarray(value(frame), bool)
        return bool(truth.any()), not truth.all()

    return PythonCondition(_margins_of(test), truths, tuple(constants))


def is_elementwise(node: ast.expr) -> bool:
    """Whether an expression is a comparison, or some joined by `&`, `|` and `~`: a mask in NumPy code."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        return is_elementwise(node.left) and is_elementwise(node.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return is_elementwise(node.operand)
    return isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], _ORDERED)


def _is_pure(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in _PURE
    return isinstance(node, _SIMPLE)


def _value_of(node: ast.expr) -> Callable[[Any], Any]:
    code = compile(ast.Expression(node), "<condition>", "eval")
    return lambda frame: eval(code, frame.f_globals, frame.f_locals)  # noqa: S307 (the user's own expression)


def _margins_of(test: ast.expr) -> Callable[[Any], Margins]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _margins_of(test.operand)
        return lambda frame: inner(frame)[::-1]
    if isinstance(test, ast.BoolOp):
        parts = [_margins_of(part) for part in test.values]
        return _join(parts, every=isinstance(test.op, ast.And))
    if isinstance(test, ast.Compare):
        ends = [test.left, *test.comparators]
        pairs = [_comparison_margins(*each) for each in zip(ends, test.ops, ends[1:], strict=False)]
        return pairs[0] if len(pairs) == 1 else _join(pairs, every=True)
    if is_elementwise(test):
        each = _mask_margins(test)
        return lambda frame: tuple(float(np.max(side)) for side in each(frame))  # type: ignore[return-value] # two
    reduced = _reduction_margins(test)
    if reduced is not None:
        return reduced
    value = _value_of(test)

    def truth(frame: Any) -> Margins:
        return (1.0, -1.0) if value(frame) else (-1.0, 1.0)

    return truth


def _join(parts: list[Callable[[Any], Margins]], *, every: bool) -> Callable[[Any], Margins]:
    def margins(frame: Any) -> Margins:
        true, false = zip(*(part(frame) for part in parts), strict=True)
        if every:
            return _margin_of_all(np.array(true)), max(false)
        return max(true), _margin_of_all(np.array(false))

    return margins


def _margin_of_all(margins: Any) -> float:
    missing = float(np.minimum(margins, 0.0).sum())
    return missing if missing < 0 else float(np.min(margins, initial=np.inf))


def _element_margins(left: ast.expr, op: ast.cmpop, right: ast.expr) -> Callable[[Any], tuple[Any, Any]]:
    """Return the margins of each element of a comparison."""
    first, second = _value_of(left), _value_of(right)

    def margins(frame: Any) -> tuple[Any, Any]:
        difference = np.asarray(first(frame), np.float64) - np.asarray(second(frame), np.float64)
        if isinstance(op, ast.Eq | ast.NotEq):
            margins_of_equality = -np.abs(difference), np.abs(difference)
            return margins_of_equality if isinstance(op, ast.Eq) else margins_of_equality[::-1]
        if isinstance(op, _ABOVE):
            return difference, -difference
        if isinstance(op, _BELOW):
            return -difference, difference
        raise TypeError("no order")

    return margins


def _mask_margins(node: ast.expr) -> Callable[[Any], tuple[Any, Any]]:
    """Return the margins of each element of a mask; see `is_elementwise`."""
    if isinstance(node, ast.UnaryOp):
        inner = _mask_margins(node.operand)
        return lambda frame: inner(frame)[::-1]
    if isinstance(node, ast.BinOp):
        parts = _mask_margins(node.left), _mask_margins(node.right)
        is_and = isinstance(node.op, ast.BitAnd)

        def margins(frame: Any) -> tuple[Any, Any]:
            true, false = zip(*(part(frame) for part in parts), strict=True)
            return (
                (_margin_of_both(*true), np.maximum(*false))
                if is_and
                else (np.maximum(*true), _margin_of_both(*false))
            )

        return margins
    assert isinstance(node, ast.Compare)  # noqa: S101 (`is_elementwise` allows nothing else)
    return _element_margins(node.left, node.ops[0], node.comparators[0])


def _margin_of_both(first: Any, second: Any) -> Any:
    missing = np.minimum(first, 0.0) + np.minimum(second, 0.0)
    return np.where(missing < 0, missing, np.minimum(first, second))


def _comparison_margins(left: ast.expr, op: ast.cmpop, right: ast.expr) -> Callable[[Any], Margins]:
    elements = _element_margins(left, op, right)

    def margins(frame: Any) -> Margins:
        true, false = elements(frame)
        return float(np.max(true)), float(np.max(false))

    return margins


def _reduction_margins(test: ast.expr) -> Callable[[Any], Margins] | None:
    """Return the margins of `(a > b).any()`, `np.all(a > b)` and the like; `None` for anything else."""
    if not isinstance(test, ast.Call) or test.keywords:
        return None
    name = test.func.attr if isinstance(test.func, ast.Attribute) else getattr(test.func, "id", "")
    inner = test.args[0] if test.args else getattr(test.func, "value", None)
    if name not in ("any", "all") or not isinstance(inner, ast.Compare) or len(inner.ops) != 1:
        return None
    elements = _element_margins(inner.left, inner.ops[0], inner.comparators[0])

    def margins(frame: Any) -> Margins:
        true, false = elements(frame)
        if name == "any":
            return float(np.max(true)), _margin_of_all(false)
        return _margin_of_all(true), float(np.max(false))

    return margins
