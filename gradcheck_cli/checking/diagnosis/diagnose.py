"""What a mistake looks like: the shape of an error says more about its cause than its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.checking.diagnosis.hint_view import Scene, view_of
from gradcheck_cli.checking.diagnosis.hints import hint
from gradcheck_cli.checking.ops.packing import index_of
from gradcheck_cli.numerics import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from gradcheck_cli.checking.ops.operation import TensorInfo
    from gradcheck_cli.checking.ops.packing import Float
    from gradcheck_cli.checking.pairs.pair_sample import PairSample

# Of the larger magnitude: what two Jacobians may differ by and still count as one made from the other.
_ALIKE = 1e-3
# A Jacobian up to this size is written out and turned about; of a larger one less is said.
_MOST_WHOLE = 2**18


def diagnose(
    samples: Sequence[PairSample],
    output: TensorInfo,
    taken: TensorInfo,
    others: Sequence[Mapping[str, PairSample]],
    scenes: Sequence[Scene],
) -> tuple[str, ...]:
    """Say what a pair's mistake looks like.

    Args:
        samples: the pair at each sample point.
        output: what is differentiated.
        taken: by what.
        others: the other pairs of the same output at each sample point, by their input's name.
        scenes: the sample points.

    Returns:
        The likeliest hypothesis that fits; nothing where no known one does.
    """
    number = next((number for number, one in enumerate(samples) if _wrong(one).any()), None)
    if number is None or not samples[number].is_connected:
        return ()
    if samples[0].elements <= _MOST_WHOLE:
        samples = [one.whole() for one in samples]
    sample = samples[number]
    spoilt = ~np.isfinite(sample.analytic)
    if (spoilt & _wrong(sample)).any():
        return (_not_finite(spoilt & _wrong(sample), sample, output, taken),)
    if spoilt.any():  # where nothing could be said of the forward either: some matrices of a batch, say
        stands = ~spoilt & np.isfinite(sample.numeric)
        analytic, numeric = (np.where(stands, part, 0.0) for part in (sample.analytic, sample.numeric))
        triangle = one_triangle(analytic, numeric, taken) if sample.is_whole else ""
        return (triangle,) if triangle else ()
    # Some elements say little of the whole.
    if sample.method == "probe" or any(not np.isfinite(one.analytic).all() for one in samples):
        return ()
    known = _of_zeros(samples, output, taken)
    if known or not all(one.is_whole for one in samples):
        return (known,) if known else ()
    told = one_triangle(sample.analytic, sample.numeric, taken) or _as_conjugate(samples, output, taken)
    written = [
        {name: other.whole() for name, other in some.items() if other.elements <= _MOST_WHOLE}
        for some in others
    ]
    views = [
        view_of(one, output.name, some, scene)
        for one, some, scene in zip(samples, written, scenes, strict=False)
    ]
    told = told or hint(views, output, taken) or _place(_wrong(sample), output, taken)
    return (told,) if told else ()


def _of_zeros(samples: Sequence[PairSample], output: TensorInfo, taken: TensorInfo) -> str:
    """Say that the gradient, or the derivative, is zero everywhere."""
    if all(one.analytic_is_zero for one in samples):
        return "the gradient is zero everywhere: is the upstream, or a term, dropped?"
    if all(one.numeric_is_zero for one in samples):
        return (
            f"{output.name} doesn't move with {taken.name} at all, but the gradient isn't zero: is it a "
            "surrogate, or that of a sampler's expectation? Name the function whose derivative is meant as "
            "its 'reference'"
        )
    return ""


def _wrong(sample: PairSample) -> npt.NDArray[np.bool_]:
    return np.asarray(sample.verdict == Verdict.MISMATCH)


def _not_finite(
    spoilt: npt.NDArray[np.bool_], sample: PairSample, output: TensorInfo, taken: TensorInfo
) -> str:
    here, there = (int(index) for index in np.argwhere(spoilt)[0])
    row, column = sample.place(here, there)
    count = int(np.count_nonzero(spoilt))
    place = f"{output.name}{list(index_of(row, output))} / {taken.name}{list(index_of(column, taken))}"
    return f"{count} element(s) of the gradient aren't finite, the first at {place}"


def _alike(left: npt.NDArray[np.inexact], right: npt.NDArray[np.inexact]) -> bool:
    """Whether two Jacobians are one and the same, and not trivially so."""
    scale = float(np.max(np.abs(right), initial=0.0))
    return left.shape == right.shape and scale > 0 and bool(np.all(np.abs(left - right) <= _ALIKE * scale))


def one_triangle(analytic: Float, numeric: Float, taken: TensorInfo) -> str:
    """Say that a function reads one triangle of a matrix, where that is all that a gradient differs by.

    The one is zero in a triangle, and twice the other's in the other one; or each is, in another triangle.
    For a matrix that stays symmetric both are the same derivative.
    """
    is_square = len(taken.shape) > 1 and taken.shape[-1] == taken.shape[-2] > 1
    if not is_square or _alike(analytic, numeric):
        return ""
    both = [_as_matrices(values, taken) for values in (analytic, numeric)]
    parts = [each + np.conj(np.swapaxes(each, -1, -2)) for each in both]
    if not _alike(parts[0], parts[1]):
        return ""
    for each, whose in zip(both, ("gradient is", "differences are"), strict=True):
        for triangle, where in ((np.triu(each, 1), "above"), (np.tril(each, -1), "below")):
            if not triangle.any():
                return (
                    f"the {whose} zero {where} the diagonal of {taken.name}, and the symmetric parts agree: "
                    "one triangle is read, and the gradient is right if the matrix stays symmetric; then say "
                    f"'symmetric: true' of {taken.name}"
                )
    return ""


def _as_matrices(values: Float, taken: TensorInfo) -> npt.NDArray[np.complex128]:
    """Return packed rows as matrices, complex ones for a complex input."""
    real, imaginary = values[:, : taken.size], values[:, taken.size :]
    whole = real + 1j * imaginary if taken.is_complex else real + 0j
    return np.asarray(whole.reshape(-1, *taken.shape), np.complex128)


def _as_conjugate(samples: Sequence[PairSample], output: TensorInfo, taken: TensorInfo) -> str:
    if not taken.is_complex:
        return ""
    columns, both = [], []
    for sample in samples:
        turned = sample.analytic.copy()
        turned[:, taken.size :] *= -1
        columns.append(_alike(turned, sample.numeric))
        # conj(J' u) in place of J' conj(u) and the like: the rows of imaginary upstreams change sign too.
        turned[output.size :] *= -1
        both.append(output.is_complex and _alike(turned, sample.numeric))
    if all(columns):
        return f"the gradient for {taken.name} is conjugated: tf.math.conj is missing, or one too many"
    if all(both):
        return (
            f"a factor in the gradient for {taken.name} isn't conjugated: TensorFlow's convention is "
            "conj(df/dx) u"
        )
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
