"""What a mistake looks like: the shape of an error says more about its cause than its size.

Each hypothesis is a transformation of the numeric Jacobian that a known mistake makes; it is named only if
the analytic Jacobian is that transformation, element by element, within the bounds that judged it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.packing import index_of
from gradcheck_cli.numerics import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from gradcheck_cli.checking.operation import TensorInfo
    from gradcheck_cli.checking.packing import Float
    from gradcheck_cli.checking.pair_sample import PairSample

# Of the larger magnitude: what two Jacobians may differ by and still count as one made from the other.
_ALIKE = 1e-3
# A sparse Jacobian up to this size is written out; of a larger one less is said.
_MOST_WHOLE = 2**22


def diagnose(
    sample: PairSample,
    output: TensorInfo,
    taken: TensorInfo,
    others: Mapping[str, PairSample],
) -> tuple[str, ...]:
    """Say what a pair's mistake looks like.

    Args:
        sample: the pair where it mismatches.
        output: what is differentiated.
        taken: by what.
        others: the other pairs of the same output, by their input's name; for swapped gradients.

    Returns:
        One line for each hypothesis that fits; none where no known one does.
    """
    wrong = sample.verdict == Verdict.MISMATCH
    if not wrong.any() or not sample.is_connected:
        return ()
    if sample.elements <= _MOST_WHOLE:
        sample = sample.whole()
        wrong = sample.verdict == Verdict.MISMATCH
        others = {name: other.whole() for name, other in others.items() if other.elements <= _MOST_WHOLE}
    analytic, numeric = sample.analytic, sample.numeric
    if not np.isfinite(analytic).all():
        here, there = (int(index) for index in np.argwhere(~np.isfinite(analytic))[0])
        where = sample.place(here, there)
        count = int(np.count_nonzero(~np.isfinite(analytic)))
        place = (
            f"{output.name}{list(index_of(where[0], output))} / {taken.name}{list(index_of(where[1], taken))}"
        )
        return (f"{count} element(s) of the gradient aren't finite, the first at {place}",)
    if not np.isfinite(numeric).all():
        return ()
    if sample.method == "probe":  # some elements say little of the whole
        return ()
    found = [_as_zero(analytic), _as_factor(analytic, numeric)]
    if sample.is_whole:
        found += [
            _as_transpose(analytic, numeric, taken),
            _as_conjugate(analytic, numeric, output, taken),
            _as_swap(analytic, {name: other for name, other in others.items() if other.is_whole}),
            _as_reordered(analytic, numeric),
        ]
        if not any(found):
            found.append(_place(wrong, output, taken))
    return tuple([line for line in found if line][:2])


def _alike(left: Float, right: Float) -> bool:
    """Whether two Jacobians are one and the same, and not trivially so."""
    scale = float(np.max(np.abs(right), initial=0.0))
    return left.shape == right.shape and scale > 0 and bool(np.all(np.abs(left - right) <= _ALIKE * scale))


def _as_zero(analytic: Float) -> str:
    return (
        "the gradient is zero everywhere: is the upstream, or a term, dropped?" if not analytic.any() else ""
    )


def _as_factor(analytic: Float, numeric: Float) -> str:
    size = float(np.vdot(numeric, numeric))
    if size == 0:
        return ""
    factor = float(np.vdot(numeric, analytic)) / size
    if factor == 0 or abs(factor - 1) < 1e-9 or not _proportional(analytic, numeric, factor):  # noqa: PLR2004 (1)
        return ""
    if abs(factor + 1) < _ALIKE:
        return "the sign is flipped: the gradient is -1 times the derivative"
    nearest = Fraction(factor).limit_denominator(12)
    if nearest not in {0, 1} and abs(float(nearest) - factor) < _ALIKE * abs(factor):
        return f"the gradient is {nearest} times the derivative"
    return f"the gradient is {factor:.6g} times the derivative"


def _proportional(analytic: Float, numeric: Float, factor: float) -> bool:
    """Whether the factor explains the gradient: what is left is small beside what it explains."""
    left = np.abs(analytic - factor * numeric)
    explained = abs(factor - 1) * np.abs(numeric)
    scale = float(np.max(explained, initial=0.0))
    return bool(np.all(left <= 1e-2 * explained + 1e-6 * scale)) and int(np.count_nonzero(numeric)) > 1


def _as_transpose(analytic: Float, numeric: Float, taken: TensorInfo) -> str:
    is_square = len(taken.shape) > 1 and taken.shape[-1] == taken.shape[-2] > 1
    if taken.is_complex or not is_square:
        return ""
    turned = np.swapaxes(analytic.reshape(-1, *taken.shape), -1, -2).reshape(analytic.shape)
    return f"the gradient for {taken.name} is transposed" if _alike(turned, numeric) else ""


def _as_conjugate(analytic: Float, numeric: Float, output: TensorInfo, taken: TensorInfo) -> str:
    if not taken.is_complex:
        return ""
    turned = analytic.copy()
    turned[:, taken.size :] *= -1
    if _alike(turned, numeric):
        return f"the gradient for {taken.name} is conjugated: tf.math.conj is missing, or one too many"
    if output.is_complex:
        # conj(J' u) in place of J' conj(u) and the like: the rows of imaginary upstreams change sign too.
        turned[output.size :] *= -1
        if _alike(turned, numeric):
            return (
                f"a factor in the gradient for {taken.name} isn't conjugated: "
                "TensorFlow's convention is conj(df/dx) u"
            )
    return ""


def _as_swap(analytic: Float, others: Mapping[str, PairSample]) -> str:
    for name, other in others.items():
        if _alike(analytic, other.numeric):
            return (
                f"it is the derivative with respect to {name}: are the gradients returned in the wrong order?"
            )
    return ""


def _as_reordered(analytic: Float, numeric: Float) -> str:
    if analytic.shape[1] < 2 or _alike(analytic, numeric):  # noqa: PLR2004 (one element has no order)
        return ""
    if _alike(analytic[:, ::-1], numeric):
        return "the elements stand in reverse order"
    return ""


def _place(wrong: npt.NDArray[np.bool_], output: TensorInfo, taken: TensorInfo) -> str:
    """Say where the wrong elements are, if they keep to a part."""
    rows, columns = np.flatnonzero(wrong.any(axis=1)), np.flatnonzero(wrong.any(axis=0))
    if wrong.shape[1] > 1 and columns.size == 1:
        place = list(index_of(int(columns[0]), taken))
        return f"only the gradient's element {taken.name}{place} is wrong"
    if wrong.shape[0] > 1 and rows.size == 1:
        return f"only output {output.name}{list(index_of(int(rows[0]), output))} has a wrong gradient"
    on_diagonal = wrong.shape[0] == wrong.shape[1] and not wrong[~np.eye(wrong.shape[0], dtype=bool)].any()
    if wrong.shape[0] > 2 and not on_diagonal and wrong.all():  # noqa: PLR2004 (two say little)
        return "every element is wrong"
    return ""
