"""Arrays from files beside a spec, read without pickle and checked against a dtype.

Needs numpy: `written` imports it only for a spec that names a file.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.spec.dtypes import INTEGER_RANGES, LARGEST_FLOATS, kind_of
from gradcheck_cli.spec.faults import show, suggest, suggest_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = {"float": "biuf", "complex": "biufc", "integer": "iuf", "bool": "b", "string": "U"}


class ArrayError(Exception):
    """A file that doesn't give the array asked for; the text is a fault's message."""


def load(folder: str, path: str, key: str | None) -> NDArray[np.generic]:
    """Read an array.

    Args:
        folder: where relative paths start.
        path: the file.
        key: the array's name in an `.npz` file.

    Returns:
        The array as stored.

    Raises:
        ArrayError: there is no such file or key, or it can't be read.
    """
    file = Path(folder, path)
    # Not Path.is_file, which raises for names too long.
    if not os.path.isfile(file):  # noqa: PTH113
        near = suggest_file(file)
        raise ArrayError(f"must be a file, but got {show(path)}, which doesn't exist{near and '. ' + near}")
    try:
        # Opened here: numpy leaves a broken archive open.
        with file.open("rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray) != (key is None):
                raise ValueError("the other of the two formats, .npy and .npz")  # noqa: TRY301 (same words)
            if key is None:
                return np.asarray(loaded)
            names = list(loaded.files)
            if key in names:
                return np.asarray(loaded[key])
    except Exception as error:  # numpy, zipfile and zlib raise whatever the bytes provoke
        # numpy's own text may run over several lines.
        detail = " ".join(str(error).split()) or type(error).__name__
        raise ArrayError(f"must be an array without pickled objects, but {path!r} gave: {detail}") from error
    near = suggest(key, names) or f"It holds: {', '.join(names) or 'nothing'}"
    raise ArrayError(f"must name an array in {path!r}, but got {key!r}. {near}")


def fit(array: NDArray[np.generic], dtype: str) -> NDArray[np.generic]:
    """Return an array in the wide type of a dtype.

    Raises:
        ArrayError: its values don't fit the dtype.
    """
    kind = kind_of(dtype)
    if array.dtype.kind not in KINDS[kind]:
        raise ArrayError(f"must hold values for dtype {dtype}, but got an array of {array.dtype}")
    if kind == "integer" and array.size:
        low, high = INTEGER_RANGES[dtype]
        if array.dtype.kind == "f" and not np.all(np.isfinite(array) & (np.floor(array) == array)):
            raise ArrayError(f"must hold integers for dtype {dtype}, but got fractions")
        # Python's numbers compare exactly, where 2**64 - 1 rounds up as a float64.
        if int(array.min()) < low or int(array.max()) > high:
            raise ArrayError(
                f"must hold integers from {low} to {high}, but got {array.min()} to {array.max()}"
            )
    if kind in ("float", "complex") and array.size:
        wide = array.astype(np.complex128)
        parts = np.concatenate([np.abs(wide.real).ravel(), np.abs(wide.imag).ravel()])
        if np.any(np.isfinite(parts) & (parts > LARGEST_FLOATS[dtype])):
            raise ArrayError(
                f"must hold values of at most {LARGEST_FLOATS[dtype]:.6g} in size for dtype {dtype}"
            )
    return array.astype(wide_type(dtype))


def check_domain(array: NDArray[np.generic], low: float | None, high: float | None) -> None:
    """Check that every value lies between two bounds; on them is inside.

    Raises:
        ArrayError: one doesn't.
    """
    if not array.size or array.dtype.kind not in "iuf":
        return
    least, most = array.min(), array.max()
    # `not (a <= b)` rather than `a > b`: NaN lies in no domain.
    if (low is not None and not least >= low) or (high is not None and not most <= high):
        bounds = f"{'-.inf' if low is None else show(low)} to {'.inf' if high is None else show(high)}"
        raise ArrayError(f"must stay inside the domain {bounds}, but holds values from {least} to {most}")


def wide_type(dtype: str) -> type:
    """Return the numpy type in which values of a dtype are drawn and kept."""
    if dtype == "uint64":
        return np.uint64
    wide: dict[str, type] = {
        "float": np.float64,
        "complex": np.complex128,
        "integer": np.int64,
        "bool": np.bool_,
        "string": np.object_,
    }
    return wide[kind_of(dtype)]
