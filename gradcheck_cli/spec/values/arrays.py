"""Reads arrays from files beside a spec, without pickle, and checks them against a dtype.

Needs numpy: `constraints` imports it only for a spec that names a file.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradcheck_cli.errors import suggest
from gradcheck_cli.spec.case import UNBOUNDED, Interval, kind_of
from gradcheck_cli.spec.faults import show, suggest_file
from gradcheck_cli.spec.words import INTEGER_RANGES, LARGEST_FLOATS

MAX_BYTES = 2**30  # of an array: far more than can be differenced
KINDS = {"float": "biuf", "complex": "biufc", "integer": "iuf", "bool": "b", "string": "U"}


class ArrayError(Exception):
    """A file doesn't give the requested array; the text is a fault's message."""


def read(
    folder: str,
    arguments: Mapping[str, Any],
    dtype: str,
    shape: tuple[int, ...] | None,
    domain: Interval,
) -> NDArray[np.generic]:
    """Read an array, and check it against what a spec says of it.

    Args:
        folder: that of relative paths.
        arguments: of a source `file`: the `path`, and the `key` in an `.npz` file.

    Raises:
        ArrayError: it can't be read, or doesn't fit the dtype, the shape or the domain.
    """
    array = _load(folder, **arguments)
    if shape is not None and array.shape != shape:
        shapes = f"{show(list(shape))}, but got {show(list(array.shape))}"
        raise ArrayError(f"must hold an array of shape {shapes}. Change one of them")
    if array.dtype.kind not in KINDS[kind_of(dtype)]:
        raise ArrayError(f"must hold values for dtype {dtype}, but got an array of {array.dtype}")
    _check_values(array, dtype)
    low, high = domain
    if domain != UNBOUNDED and array.size and array.dtype.kind in "iuf":
        least, most = array.min(), array.max()
        if not low <= least <= most <= high:  # so NaN lies in no domain
            bounds = f"{show(low)} to {show(high)}, but holds values from {least} to {most}"
            raise ArrayError(f"must stay inside the domain {bounds}")
    return array


def _load(folder: str, path: str, key: str | None) -> NDArray[np.generic]:
    file = Path(folder, path)
    if not os.path.isfile(file):  # noqa: PTH113 (Path.is_file raises for names too long)
        near = suggest_file(file)
        raise ArrayError(f"must be a file, but got {show(path)}, which doesn't exist{near and '. ' + near}")
    try:
        # Opened here: numpy leaves a broken archive open.
        with file.open("rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if key is None:
                _require_size(file.stat().st_size)
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray) != (key is None):
                raise ValueError("the other of the two formats, .npy and .npz")  # noqa: TRY301 (same words)
            if key is None:
                return np.asarray(loaded)
            # Of what is unpacked; reading ends there, whatever a header says.
            sizes = {
                member.filename.removesuffix(".npy"): member.file_size for member in loaded.zip.infolist()
            }
            if key in sizes:
                _require_size(sizes[key])
                return np.asarray(loaded[key])
    except ArrayError:
        raise
    except Exception as error:  # numpy, zipfile and zlib may raise anything for broken bytes
        # numpy's own text may have several lines.
        detail = " ".join(str(error).split()) or type(error).__name__
        if "unsafely" in detail:  # its advice for all bytes that it doesn't know
            detail = "neither numpy.save nor numpy.savez wrote it"
        raise ArrayError(f"must be an array without pickled objects, but {path!r} gave: {detail}") from error
    near = suggest(key, sizes, "It holds")
    raise ArrayError(f"must name an array in {path!r}, but got {key!r}. {near}")


def _require_size(size: int) -> None:
    """Refuse what is larger than any array by which a gradient can be checked, before it is in memory."""
    if size > MAX_BYTES:
        raise ArrayError(f"must hold at most {MAX_BYTES} bytes, but holds {size}. Save a part of it")


def _check_values(array: NDArray[np.generic], dtype: str) -> None:
    kind = kind_of(dtype)
    if kind == "integer" and array.size:
        low, high = INTEGER_RANGES[dtype]
        if array.dtype.kind == "f" and not np.all(np.isfinite(array) & (np.floor(array) == array)):
            raise ArrayError(f"must hold integers for dtype {dtype}, but got fractions")
        # Python's numbers compare exactly; as a float64, 2**64 - 1 rounds up.
        if int(array.min()) < low or int(array.max()) > high:
            raise ArrayError(
                f"must hold integers from {low} to {high}, but got {array.min()} to {array.max()}"
            )
    if kind in ("float", "complex"):
        for component in (array.real, array.imag) if array.dtype.kind == "c" else (array,):
            finite = np.isfinite(component)  # no copy of an array that may hardly fit
            least, most = component.min(where=finite, initial=0), component.max(where=finite, initial=0)
            if max(-float(least), float(most)) > LARGEST_FLOATS[dtype]:
                raise ArrayError(
                    f"must hold values of at most {LARGEST_FLOATS[dtype]:.6g} in size for dtype {dtype}"
                )


def as_lists(array: NDArray[Any]) -> object:
    """Return an array as a `value` of a spec: nested lists, with complex numbers as text such as `1+2j`."""
    if array.dtype.kind == "c":
        texts = np.array([str(element).strip("()") for element in array.ravel()], object)
        return texts.reshape(array.shape).tolist()
    if array.dtype.kind in "fV":  # also bfloat16
        return array.astype(np.float64).tolist()
    return array.tolist()
