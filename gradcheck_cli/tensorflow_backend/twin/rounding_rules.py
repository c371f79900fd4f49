"""How each op rounds, and functions that move what it returns by one rounding, up or down at random.

The direction is a hash of the result's bits and of a key, which the place and the draw make: the same in each
run of a draw, another for each element and round of a loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from gradcheck_cli.numerics import precision_of
from gradcheck_cli.spec.words import DTYPE_KINDS

# What only moves, chooses or copies numbers; what it returns was rounded when it was made.
_EXACT = re.compile(
    r"Placeholder\w*|_?Arg|_Retval|Identity\w*|Snapshot|StopGradient|PreventGradient|CheckNumerics\w*|Reshape|Squeeze"
    r"|ExpandDims|\w*Transpose|Gather\w*|(Strided)?Slice(Grad)?|Concat\w*|Pack|Unpack|Split\w*|Pad\w*|MirrorPad|Tile"
    r"|Broadcast\w*|Reverse\w*|Roll|Fill|(Zeros|Ones)Like|Empty\w*|Diag\w*|Matrix(Set|Band)?(Diag|Part)\w*|Neg|Abs"
    r"|Sign|Relu6?(Grad)?|Maximum|Minimum|Max|Min|TopK\w*|Where|Select\w*|ClipByValue|MaxPool\w*|Floor\w*|Ceil|Round"
    r"|Rint|Tensor(Array|List|Map|Scatter(Update|Max|Min))\w*|Stack\w*|(Parallel)?DynamicStitch\w*|Dynamic\w*|Bitcast"
    r"|ParallelConcat|SpaceTo\w+|BatchToSpace\w*|DepthToSpace|Real|Imag|Complex|Conj|OneHot|NextAfter|ScatterNd"
    r"|\w*Random\w*|Multinomial|(Stateless)?(While|If|Case)|(Stateful)?PartitionedCall|SparseToDense|Print\w*|Merge"
    r"|Unique\w*|EnsureShape|Shape\w*|GuaranteeConst|ReadVariableOp|Variable\w*|ResourceGather\w*|\w*Queue\w*|Cast"
)
# Kernels that add up: their terms are rounded inside, so that these move, too, unless they have few bits.
_SUMS = re.compile(
    r"Sum|Mean|MatMul|BatchMatMul\w*|Einsum|Conv\w*|DepthwiseConv\w*|AvgPool\w*|AddN|BiasAdd(Grad)?|Cum\w+|Prod"
    r"|\w*SegmentSum\w*|FusedBatchNorm\w*|L2Loss|Sparse\w*MatMul\w*|LRN\w*|Resize\w*"
)
# These are exact for arguments some roundings away: they are backward stable, or have roots.
_BACKWARD = re.compile(
    r"Cholesky\w*|(Log)?Matrix(Inverse|Determinant|\w*Solve\w*|Exponential|Logarithm|SquareRoot)|Qr|Svd|Lu"
    r"|SelfAdjointEig\w*|Eig|Tridiagonal\w*|Banded\w*|I?R?FFT\w*|Digamma|Lgamma|Polygamma|Zeta|Betainc|I?gamma\w*"
    r"|Random(Gamma|Binomial)Grad|Bessel\w+|Ndtri|Erfinv"
)
# Differences of numbers of size 1 hide in these kernels.
_OF_ONE = re.compile(r"LogSoftmax|(Sparse)?SoftmaxCrossEntropyWithLogits|Elu|Selu")
# Rational approximations, which are off by several roundings: tanh is 1 in float64 from 17.6 on.
_APPROXIMATED = re.compile(r"Tanh|Sigmoid|Erfc?")
# Exact if the result has few bits: sums of ones, squares of integers, a quotient of equal numbers.
_WHOLE = re.compile(r"Sum|Mean|Prod|(Batch)?MatMul\w*|AddN|Sqrt|Pow|Cumsum|Range|LinSpace|Einsum|BiasAdd\w*")
# The integers that floats are seen as, and how many bits their mantissas have.
_BITS = {
    dtype: (tf.as_dtype(f"int{8 * dtype.size}"), int(-np.log2(precision_of(dtype.name).unit_roundoff)))
    for dtype in map(tf.as_dtype, reversed(DTYPE_KINDS["floating"]))
}
NUMBERS = (*_BITS, *map(tf.as_dtype, DTYPE_KINDS["complex"]))
# The variable with the keys of all places in the present draw.
_KEYS = {"shared_name": "gradcheck_random_rounding", "dtype": tf.int64, "shape": None}
# Odd numbers with bits of no order (those of splitmix64, and of the golden ratio), as int64: where
# TensorFlow converts dtypes as NumPy does, it may take Python's integers for int32.
_MIXED = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64).view(np.int64)


def round_as_drawn(draw: int, moves: npt.NDArray[np.bool_]) -> None:
    """Let a perturbed graph round as a draw says from now on.

    Args:
        draw: the number of the draw; 0: as it does anyway.
        moves: for each of the graph's places, whether numbers move there.
    """
    keys = (1 + np.arange(len(moves))) * _MIXED[0] + draw * int(_MIXED[1]) % 2**62
    values = tf.constant(np.where(moves & bool(draw), keys, 0))
    tf.raw_ops.AssignVariableOp(resource=tf.raw_ops.VarHandleOp(**_KEYS), value=values)


def keys_at(places: Any) -> Any:
    """Return the key of each place in the present draw; 0 where nothing moves."""
    handle = tf.raw_ops.VarHandleOp(**_KEYS)
    return tf.raw_ops.ResourceGather(resource=handle, indices=places, dtype=tf.int64)


def _direction(bits: Any, key: Any) -> Any:
    """Return 1 or -1 for each element; 0 for all where nothing is to move."""
    mixed = tf.bitwise.bitwise_xor(tf.cast(bits, tf.int64), key) * _MIXED[1]
    mixed = (
        tf.bitwise.bitwise_xor(mixed, tf.bitwise.right_shift(mixed, tf.constant(32, tf.int64))) * _MIXED[2]
    )
    sign = tf.bitwise.bitwise_or(tf.bitwise.right_shift(mixed, tf.constant(63, tf.int64)), 1)
    return sign * tf.cast(tf.not_equal(key, 0), tf.int64)


def _few_bits(value: Any, most: int) -> Any:
    """Say which numbers have at most so many significant bits; 1 means a power of two, or zero."""
    integer, precision = _BITS[value.dtype]
    mask = np.array((1 << (precision - most)) - 1, integer.as_numpy_dtype)
    return tf.equal(tf.bitwise.bitwise_and(tf.bitcast(value, integer), mask), 0)


def _move(value: Any, key: Any, exact: Any = None, size: Any = None) -> Any:
    """Move numbers to the next one above or below, except exact ones; or by a rounding of a given size."""
    if value.dtype.is_complex:  # a product's error is relative to the modulus
        size = tf.abs(value)
        parts = zip((tf.math.real(value), tf.math.imag(value)), (key, key * _MIXED[2]), strict=True)
        return tf.complex(*(_move(part, of_part, size=size) for part, of_part in parts))
    integer, precision = _BITS[value.dtype]
    bits = tf.bitcast(value, integer)
    direction = _direction(bits, key)
    if size is None:
        moved = tf.bitcast(bits + tf.cast(direction, integer), value.dtype)
    else:
        moved = value + tf.cast(direction, value.dtype) * size * 2.0 ** (1 - precision)
    moves = tf.math.is_finite(moved - value)
    if size is None:
        moves &= tf.not_equal(value, 0)
    if exact is not None:
        moves &= ~exact
    return tf.where(moves, moved, value)


def plain(key: Any, value: Any) -> Any:
    """Move each number but zeros."""
    return _move(value, key)


def _short(key: Any, value: Any) -> Any:
    """Move what has more than a quarter of its dtype's bits: others are hardly rounded numbers."""
    if value.dtype.is_complex:
        return _move(value, key)
    return _move(value, key, _few_bits(value, max(_BITS[value.dtype][1] // 4, 2)))


def literal(key: Any, value: Any) -> Any:
    """Move numbers of a constant but integers, and what has few bits."""
    if value.dtype.is_complex:
        return _move(value, key)
    return _move(value, key, _few_bits(value, _BITS[value.dtype][1] // 4) | tf.equal(value, tf.round(value)))


def _of_one(key: Any, value: Any) -> Any:
    return _move(value, key, size=tf.maximum(tf.abs(value), 1))


def _coarsely(key: Any, value: Any) -> Any:
    return _move(value, key, size=2 * tf.abs(value))


def _sum(key: Any, value: Any, first: Any, second: Any) -> Any:
    """Move a sum unless it is exact: its error is itself a number of the dtype (Knuth's two-sum)."""
    part = value - first
    return _move(value, key, tf.equal(first - (value - part), part - second))


def _difference(key: Any, value: Any, first: Any, second: Any) -> Any:
    return _sum(key, value, first, -second)


def _product(key: Any, value: Any, first: Any, second: Any) -> Any:
    half = _BITS[value.dtype][1] // 2
    exact = _few_bits(first, half) & _few_bits(second, half)
    return _move(value, key, exact | _few_bits(first, 1) | _few_bits(second, 1))


def _quotient(key: Any, value: Any, first: Any, second: Any) -> Any:
    return _move(value, key, _few_bits(second, 1) | (_few_bits(value, 1) & tf.equal(value * second, first)))


def constant(key: Any, value: Any, unit: Any) -> Any:
    """Move rounded numbers of a narrower dtype: not integers, nor what has few bits.

    A unit roundoff is the largest rounding error that a number can have, and twice a movement is allowed for.
    Three quarters of it leave two roundings, which no constant can have, outside of the bound.
    """
    most = tf.cast(-tf.math.log(unit) / (4 * np.log(2.0)), tf.int64)
    step = tf.bitwise.left_shift(tf.constant(1, tf.int64), 53 - most) - 1
    few = tf.equal(tf.bitwise.bitwise_and(tf.bitcast(value, tf.int64), step), 0)
    moved = value * (1 + 0.75 * unit * tf.cast(_direction(tf.bitcast(value, tf.int64), key), tf.float64))
    return tf.where(few | tf.equal(value, tf.math.rint(value)) | ~tf.math.is_finite(value), value, moved)


# Rules that ask whether a result is exact, and which operands say so.
_RULES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "Add": (_sum, (0, 1)),
    "AddV2": (_sum, (0, 1)),
    "Sub": (_difference, (0, 1)),
    "Mul": (_product, (0, 1)),
    "MulNoNan": (_product, (0, 1)),
    "Square": (_product, (0, 0)),
    "Div": (_quotient, (0, 1)),
    "RealDiv": (_quotient, (0, 1)),
    "DivNoNan": (_quotient, (0, 1)),
}


Rule = Callable[..., Any]  # takes a key, a value, and what else it asks


def rule_of_result(op_type: str, dtype: Any) -> tuple[Rule, tuple[int, ...]]:
    """Return the rule for what an op returns, and which operands it takes as well."""
    if dtype.is_complex:
        return plain, ()
    if _OF_ONE.fullmatch(op_type):
        return _of_one, ()
    if _APPROXIMATED.fullmatch(op_type):
        return _coarsely, ()
    return _RULES.get(op_type, (_short if _WHOLE.fullmatch(op_type) or op_type == "Cast" else plain, ()))


def rule_of_arguments(op_type: str) -> Rule | None:
    """Return the rule for what an op takes; `None` where only what it returns is rounded."""
    if op_type == "Polygamma":  # of whole orders alone
        return literal
    return _short if _SUMS.fullmatch(op_type) else plain if _BACKWARD.fullmatch(op_type) else None


def rounds(op_type: str, source: Any, target: Any) -> bool:
    """Say whether an op rounds what it makes of one dtype in another."""
    return not _EXACT.fullmatch(op_type) or (op_type == "Cast" and _narrows(source, target))


def _narrows(source: Any, target: Any) -> bool:
    """Whether a cast from one dtype to another rounds."""
    return source in _BITS and target in _BITS and _BITS[source][1] > _BITS[target][1]
