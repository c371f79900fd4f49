"""Kinds of `tf.linalg.LinearOperator`, and the methods of each that give numbers, as one function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Full = tf.linalg.LinearOperatorFullMatrix
# Operators that are made of others, or of a number of rows, by what they are made from.
MADE = {
    "Adjoint": lambda matrix: tf.linalg.LinearOperatorAdjoint(Full(matrix)),
    "BlockDiag": lambda a, b: tf.linalg.LinearOperatorBlockDiag([Full(a), Full(b)]),
    "BlockLowerTriangular": lambda a, b, c: tf.linalg.LinearOperatorBlockLowerTriangular(
        [[Full(a)], [Full(b), Full(c)]]
    ),
    "Composition": lambda a, b: tf.linalg.LinearOperatorComposition([Full(a), Full(b)]),
    "Inversion": lambda matrix: tf.linalg.LinearOperatorInversion(Full(matrix)),
    "Kronecker": lambda a, b: tf.linalg.LinearOperatorKronecker([Full(a), Full(b)]),
    "LowRankUpdate": lambda base, u, diag: tf.linalg.LinearOperatorLowRankUpdate(
        tf.linalg.LinearOperatorDiag(base), u, diag_update=diag
    ),
    "ScaledIdentity": lambda multiplier: tf.linalg.LinearOperatorScaledIdentity(2, multiplier),
}


def methods(operator: str, without: Iterable[str] = (), **constants: Any) -> Callable[..., dict[str, Any]]:
    """Return an operator's methods as a function of what it is made from and of the right-hand side `x`.

    Args:
        operator: name of the class, without `LinearOperator`.
        without: methods that are left out.
        constants: further arguments of the constructor, such as hints.
    """
    made = MADE.get(operator) or getattr(tf.linalg, f"LinearOperator{operator}")

    def called(x: Any, **parameters: Any) -> dict[str, Any]:
        whole = made(**parameters, **constants)
        found = {
            "matmul": lambda: whole.matmul(x),
            "adjoint": lambda: whole.matmul(x, adjoint=True),
            "solve": lambda: whole.solve(x),
            "determinant": whole.determinant,
            "log_abs_determinant": lambda: tf.math.real(whole.log_abs_determinant()),
            "to_dense": whole.to_dense,
        }
        return {name: call() for name, call in found.items() if name not in without}

    return called
