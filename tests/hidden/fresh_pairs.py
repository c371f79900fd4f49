"""Conditions that nobody knew: behind each, a gradient is half as large again; its twin is right.

Nothing here may lead to a change of how points are chosen: then the table is known, and another is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tests.hidden.hidden_kinds import Written, scaled, when

BASES: tuple[tuple[Callable[[Any], Any], Callable[[Any], Any]], ...] = (
    (lambda x: x * x + x, lambda x: 2.0 * x + 1.0),
    (tf.sin, tf.cos),
    (lambda x: tf.exp(x / 4.0), lambda x: tf.exp(x / 4.0) / 4.0),
    (tf.nn.softplus, tf.sigmoid),
    (lambda x: x + x * tf.tanh(x), lambda x: 1.0 + tf.tanh(x) + x * (1.0 - tf.tanh(x) ** 2)),
)
UNIT = {"uniform": {"low": 0.0, "high": 1.0}}
Condition = Callable[[Any], Any]
# By name: the condition, of the whole input or of each element; its shape; what else its spec says.
PAIRS: dict[str, tuple[Condition, tuple[int, ...], Mapping[str, Any]]] = {
    "above 4.1": (lambda x: x > 4.1, (5,), {}),
    "below -3.3": (lambda x: x < -3.3, (7,), {}),
    "third above 3.6": (lambda x: x[2] > 3.6, (5,), {}),
    "last below -4.4": (lambda x: x[-1] < -4.4, (9,), {}),
    "between 3.1 and 3.2": (lambda x: (x > 3.1) & (x < 3.2), (4,), {}),
    "between 0.75 and 0.7502": (lambda x: (x > 0.75) & (x < 0.7502), (4,), {}),
    "near -1.25": (lambda x: tf.abs(x + 1.25) < 3e-5, (6,), {}),
    "tiny": (lambda x: tf.abs(x) < 2e-4, (5,), {}),
    "all tiny": (lambda x: tf.reduce_max(tf.abs(x)) < 1e-3, (5,), {}),
    "tiny sum of squares": (lambda x: tf.reduce_sum(x * x) < 1e-4, (4,), {}),
    "exactly one": (lambda x: x == 1.0, (5,), {}),
    "exactly minus a half": (lambda x: x == -0.5, (5,), {}),
    "exactly 0.3": (lambda x: x == 0.3, (5,), {}),
    "a zero in the second row": (lambda x: tf.reduce_any(x[1] == 0.0), (3, 4), {}),
    "a zero row": (lambda x: tf.reduce_all(x == 0.0, axis=1, keepdims=True), (3, 4), {}),
    "a zero column": (lambda x: tf.reduce_all(x == 0.0, axis=0, keepdims=True), (3, 4), {}),
    "two zeros": (lambda x: tf.math.count_nonzero(x == 0.0) >= 2, (6,), {}),
    "three zeros": (lambda x: tf.math.count_nonzero(x == 0.0) == 3, (6,), {}),
    "all positive": (lambda x: tf.reduce_all(x > 0.0), (14,), {}),
    "all negative": (lambda x: tf.reduce_all(x < 0.0), (11,), {}),
    "first half positive": (lambda x: tf.reduce_all(x[:8] > 0.0) & tf.reduce_all(x[8:] < 0.0), (16,), {}),
    "a positive row": (lambda x: tf.reduce_all(x > 0.0, axis=1, keepdims=True), (4, 11), {}),
    "alternating": (lambda x: tf.reduce_all(x[1:] * x[:-1] < 0.0), (13,), {}),
    "ascending": (lambda x: tf.reduce_all(x[1:] >= x[:-1]), (8,), {}),
    "descending": (lambda x: tf.reduce_all(x[1:] <= x[:-1]), (10,), {}),
    "ascending rows": (lambda x: tf.reduce_all(x[:, 1:] >= x[:, :-1]), (2, 6), {}),
    "all equal": (lambda x: tf.reduce_all(x == x[0]), (5,), {}),
    "equal sizes": (lambda x: tf.reduce_all(tf.abs(x) == tf.abs(x[0])), (5,), {}),
    "first two equal": (lambda x: x[0] == x[1], (8,), {}),
    "nearly equal": (lambda x: tf.abs(x[0] - x[1]) < 1e-4, (4,), {}),
    "equal rows": (lambda x: tf.reduce_all(x[0] == x[2]), (3, 4), {}),
    "equal columns": (lambda x: tf.reduce_all(x[:, 0] == x[:, 1]), (3, 3), {}),
    "largest twice": (lambda x: tf.math.count_nonzero(x == tf.reduce_max(x)) > 1, (6,), {}),
    "a large sum": (lambda x: tf.reduce_sum(x) > 12.0, (8,), {}),
    "a small sum": (lambda x: tf.reduce_sum(x) < -14.0, (8,), {}),
    "a large mean of a row": (lambda x: tf.reduce_max(tf.reduce_mean(x, 1)) > 2.5, (3, 5), {}),
    "a large norm": (lambda x: tf.norm(x) > 8.0, (6,), {}),
    "a small norm": (lambda x: tf.norm(x) < 0.15, (6,), {}),
    "a large range": (lambda x: tf.reduce_max(x) - tf.reduce_min(x) > 7.5, (6,), {}),
    "a small range": (lambda x: tf.reduce_max(x) - tf.reduce_min(x) < 0.05, (6,), {}),
    "a large product": (lambda x: tf.abs(tf.reduce_prod(x)) > 100.0, (4,), {}),
    "a negligible product": (lambda x: tf.abs(tf.reduce_prod(x)) < 1e-9, (4,), {}),
    "both ends large": (lambda x: (x[0] > 2.8) & (x[-1] > 2.8), (6,), {}),
    "one large, one small": (lambda x: (x[0] > 3.2) & (tf.abs(x[1]) < 1e-2), (5,), {}),
    "far apart": (lambda x: tf.abs(x[0] - x[1]) > 6.5, (4,), {}),
    "saturated": (lambda x: tf.abs(tf.tanh(x)) > 0.99999, (5,), {}),
    "a sure softmax": (lambda x: tf.reduce_max(tf.nn.softmax(x)) > 0.9995, (6,), {}),
    "a whole number": (lambda x: tf.math.floormod(x, 1.0) == 0.0, (5,), {}),
    "floor is four": (lambda x: tf.floor(x) == 4.0, (5,), {}),
    "round is minus three": (lambda x: tf.round(x) == -3.0, (5,), {}),
    "an outlier": (lambda x: tf.reduce_max(tf.abs(x)) > 6.0 * tf.reduce_mean(tf.abs(x)), (12,), {}),
    "many above one": (lambda x: tf.math.count_nonzero(x > 1.0) > 7, (10,), {}),
    "none above zero": (lambda x: ~tf.reduce_any(x > 0.1), (12,), {}),
    "close to one": (lambda x: x > 0.9999, (4,), UNIT),
    "close to zero": (lambda x: x < 3e-5, (4,), UNIT),
    "close to 0.6": (lambda x: tf.abs(x - 0.6) < 1e-5, (4,), UNIT),
    "all above 0.9": (lambda x: tf.reduce_all(x > 0.9), (5,), UNIT),
    "the end of a domain": (lambda x: x > 7.9, (5,), {"domain": {"low": -8, "high": 8}}),
    "four deviations": (lambda x: x > 5.6, (3,), {"normal": {"mean": 2, "stddev": 1}}),
    "beyond the mean": (lambda x: tf.reduce_all(x > 3.0), (8,), {"normal": {"mean": 3, "stddev": 0.5}}),
    "huge": (lambda x: x > 17.0, (4,), {}),
    "a huge sum of squares": (lambda x: tf.reduce_sum(x * x) > 300.0, (4,), {}),
    "trace above 5": (lambda x: tf.linalg.trace(x) > 5.0, (3, 3), {}),
    "nearly singular": (lambda x: tf.abs(tf.linalg.det(x)) < 1e-3, (2, 2), {}),
}

# Written when the table above was known, and the points were chosen as they are now.
LATER: dict[str, tuple[Condition, tuple[int, ...], Mapping[str, Any]]] = {
    "median above 1.8": (lambda x: tf.sort(x)[3] > 1.8, (7,), {}),
    "variance below 0.01": (lambda x: tf.math.reduce_variance(x) < 0.01, (5,), {}),
    "variance above 9": (lambda x: tf.math.reduce_variance(x) > 9.0, (6,), {}),
    "mean near zero": (lambda x: tf.abs(tf.reduce_mean(x)) < 1e-4, (6,), {}),
    "largest first, least last": (lambda x: tf.equal(tf.argmax(x), 0) & tf.equal(tf.argmin(x), 8), (9,), {}),
    "second largest above 2.5": (lambda x: tf.sort(x)[-2] > 2.5, (6,), {}),
    "sorted neighbours near": (lambda x: tf.reduce_min(tf.sort(x)[1:] - tf.sort(x)[:-1]) < 1e-5, (6,), {}),
    "sorted neighbours apart": (lambda x: tf.reduce_max(tf.sort(x)[1:] - tf.sort(x)[:-1]) > 5.0, (6,), {}),
    "no change of sign": (lambda x: tf.reduce_all(x[1:] * x[:-1] > 0.0), (12,), {}),
    "two changes of sign": (lambda x: tf.math.count_nonzero(x[1:] * x[:-1] < 0.0) == 2, (15,), {}),
    "a thousand times as large": (lambda x: tf.abs(x[0]) > 2e3 * tf.abs(x[1]), (4,), {}),
    "a ratio of one": (lambda x: tf.abs(x[0] / x[1] - 1.0) < 1e-4, (4,), {}),
    "a large weighted sum": (lambda x: tf.reduce_sum(x * tf.range(1.0, 7.0, dtype=x.dtype)) > 36.0, (6,), {}),
    "a large running sum": (lambda x: tf.reduce_max(tf.cumsum(x)) > 11.0, (8,), {}),
    "running sums below zero": (lambda x: tf.reduce_all(tf.cumsum(x) < 0.0), (24,), {}),
    "a large step": (lambda x: tf.reduce_max(tf.abs(x[1:] - x[:-1])) > 6.2, (6,), {}),
    "a palindrome": (lambda x: tf.reduce_all(x == x[::-1]), (5,), {}),
    "an odd sequence": (lambda x: tf.reduce_all(x == -x[::-1]), (6,), {}),
    "one row above the other": (lambda x: tf.reduce_min(x[1]) > tf.reduce_max(x[0]), (2, 6), {}),
    "rows of one sum": (lambda x: tf.abs(tf.reduce_sum(x[0]) - tf.reduce_sum(x[1])) < 1e-5, (2, 3), {}),
    "a zero on the diagonal": (lambda x: tf.reduce_any(tf.linalg.diag_part(x) == 0.0), (3, 3), {}),
    "a strong diagonal": (
        lambda x: tf.reduce_all(2.0 * tf.abs(tf.linalg.diag_part(x)) > 1.5 * tf.reduce_sum(tf.abs(x), 1)),
        (3, 3),
        {},
    ),
    "a negative trace": (lambda x: tf.linalg.trace(x) < -6.0, (3, 3), {}),
    "a symmetric matrix": (lambda x: tf.reduce_all(x == tf.transpose(x)), (3, 3), {}),
    "a small matrix": (lambda x: tf.norm(x) < 0.1, (2, 3), {}),
    "the largest size is negative": (lambda x: tf.reduce_min(x) < -3.1, (6,), {}),
    "a very negative logarithm": (lambda x: tf.math.log(tf.abs(x)) < -12.0, (5,), {}),
    "a square above 15": (lambda x: x * x > 15.0, (5,), {}),
    "a cube below -40": (lambda x: x**3 < -40.0, (5,), {}),
    "a small exponential": (lambda x: tf.exp(x) < 0.02, (5,), {}),
    "a sure sigmoid": (lambda x: tf.sigmoid(x) > 0.985, (5,), {}),
    "a saturated erf": (lambda x: tf.abs(tf.math.erf(x)) > 0.99999, (5,), {}),
    "a sine of one": (lambda x: tf.sin(x) > 0.9999999, (6,), {}),
    "a cosine of exactly one": (lambda x: tf.cos(x) == 1.0, (5,), {}),
    "cut to minus three": (lambda x: tf.cast(x, tf.int32) == -3, (4,), {}),
    "five halves, rounded": (lambda x: tf.round(2.0 * x) == 5.0, (5,), {}),
    "halfway": (lambda x: tf.abs(x - tf.floor(x) - 0.5) < 1e-5, (5,), {}),
    "whole hundredths": (lambda x: tf.round(x * 100.0) / 100.0 == x, (5,), {}),
    "exactly 2.75": (lambda x: x == 2.75, (4,), {}),
    "exactly -0.125": (lambda x: x == -0.125, (4,), {}),
    "just above a third": (lambda x: (x > 1.0 / 3.0) & (x < 1.0 / 3.0 + 1e-5), (5,), {}),
    "third and fifth equal": (lambda x: x[2] == x[4], (7,), {}),
    "first is minus last": (lambda x: x[0] == -x[-1], (6,), {}),
    "three equal": (lambda x: tf.reduce_any(tf.sort(x)[2:] == tf.sort(x)[:-2]), (7,), {}),
    "equal in pairs": (lambda x: (x[0] == x[1]) & (x[2] == x[3]), (4,), {}),
    "none above minus one": (lambda x: tf.reduce_all(x < -1.0), (6,), {}),
    "all within a tenth": (lambda x: tf.reduce_all(tf.abs(x) < 0.1), (4,), {}),
    "all beyond one": (lambda x: tf.reduce_all(tf.abs(x) > 1.0), (9,), {}),
    "one far, the rest near": (
        lambda x: (
            (tf.math.count_nonzero(tf.abs(x) > 3.0) == 1) & (tf.math.count_nonzero(tf.abs(x) < 0.5) == 5)
        ),
        (6,),
        {},
    ),
    "a large sum of shares": (lambda x: tf.reduce_sum(x) > 4.5, (5,), UNIT),
    "small shares": (lambda x: tf.reduce_all(x < 0.1), (4,), UNIT),
    "near a quarter": (lambda x: tf.abs(x - 0.25) < 1e-6, (5,), UNIT),
    "exactly a half": (lambda x: x == 0.5, (5,), UNIT),
    "near the upper end": (lambda x: x > 4.998, (4,), {"uniform": {"low": -5, "high": 5}}),
    "all in the lower half": (lambda x: tf.reduce_all(x < 0.0), (11,), {"uniform": {"low": -5, "high": 5}}),
    "near the lower end": (lambda x: x < 1.001, (4,), {"uniform": {"low": 1, "high": 100}}),
    "far in a half line": (lambda x: x > 6.0, (5,), {"domain": {"low": 0}}),
    "far on one side": (lambda x: x > 3.4, (4,), {"normal": {"mean": -4, "stddev": 2}}),
    "a negative product": (lambda x: x[0] * x[1] < -9.0, (4,), {}),
    "a large log-sum-exp": (lambda x: tf.reduce_logsumexp(x) > 5.5, (6,), {}),
}


def _written(kind: str, start: int, table: Mapping[str, Any]) -> dict[str, Written]:
    rows = [
        Written(
            kind,
            f"fresh-{name.replace(' ', '-').replace(',', '')}",
            scaled(when(condition), *BASES[index % len(BASES)]),
            {"x": {"shape": list(shape), **keys}},
        )
        for index, (name, (condition, shape, keys)) in enumerate(table.items(), start)
    ]
    return {row.name: row for row in rows}


FRESH = _written("first", 0, PAIRS) | _written("later", len(PAIRS), LATER)
