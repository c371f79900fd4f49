"""Reads arrays from files beside a spec, without pickle, and checks them against a dtype.

Needs numpy: `constraints` imports it only for a spec that names a file.
"""

from __future__ import annotations

import contextlib
import math
import os
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradcheck_cli.errors import suggest
from gradcheck_cli.spec.case import kind_of
from gradcheck_cli.spec.faults import show, suggest_file
from gradcheck_cli.spec.words import INTEGER_RANGES, LARGEST_FLOATS

_BLOCK = 2**20  # values at a time: some MiB
_WIDEST = 16  # bytes of a number
KINDS = {"float": "biuf", "complex": "biufc", "integer": "iuf", "bool": "b", "string": "U"}


class ArrayError(Exception):
    """A file doesn't give the requested array; the text is a fault's message."""


class ArrayPlace(NamedTuple):
    """Where an array is."""

    folder: str  # the folder of relative paths
    path: str
    key: str | None  # the array's name in an `.npz` file


def load(place: ArrayPlace) -> NDArray[np.generic]:
    """Read an array.

    Raises:
        ArrayError: there is no such file or key, or it can't be read.
    """
    folder, path, key = place
    file = Path(folder, path)
    if not os.path.isfile(file):  # noqa: PTH113 (Path.is_file raises for names too long)
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
    except Exception as error:  # numpy, zipfile and zlib may raise anything for broken bytes
        # numpy's own text may have several lines.
        detail = " ".join(str(error).split()) or type(error).__name__
        if "unsafely" in detail:  # its advice for all bytes that it doesn't know
            detail = "neither numpy.save nor numpy.savez wrote it"
        raise ArrayError(f"must be an array without pickled objects, but {path!r} gave: {detail}") from error
    near = suggest(key, names) or f"It holds: {', '.join(names) or 'nothing'}"
    raise ArrayError(f"must name an array in {path!r}, but got {key!r}. {near}")


def check(
    place: ArrayPlace, dtype: str, shape: tuple[int, ...] | None, domain: tuple[float | None, float | None]
) -> tuple[int, ...]:
    """Check an array in a file block by block, and return its shape: it is never in memory as a whole.

    If it doesn't have the shape that is written, its values aren't read.

    Raises:
        ArrayError: it can't be read, or its values don't fit the dtype or the domain.
    """
    with _open_stream(place) as (stream, kind, stored_shape):
        if shape is not None and stored_shape != shape:
            return stored_shape
        _check_kind(kind, dtype)
        left = math.prod(stored_shape)
        if stream is None:
            array = load(place).ravel(order="K")
            blocks = (array[start : start + _BLOCK] for start in range(0, left, _BLOCK))
        else:
            size = max(
                1, _BLOCK * _WIDEST // max(kind.itemsize, _WIDEST)
            )  # values of a block; texts are wide
            blocks = (_next_block(stream, kind, min(size, left - start)) for start in range(0, left, size))
        for block in blocks:
            _check_values(block, dtype)
            check_domain(block, *domain)
    return stored_shape


@contextlib.contextmanager
def _open_stream(place: ArrayPlace) -> Iterator[tuple[IO[bytes] | None, np.dtype[Any], tuple[int, ...]]]:
    """Open a file; yield its stream at the first value, and the header's dtype and shape.

    There is no stream if values can't be read one after another, as in a file that isn't an array.
    """
    file = Path(place.folder, place.path)
    with contextlib.ExitStack() as opened:
        stream: IO[bytes] | None = None
        header = None
        # Whatever is wrong with the file is reported when the array is loaded.
        with contextlib.suppress(OSError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError):
            if os.path.isfile(file):  # noqa: PTH113 (names too long)
                stream = opened.enter_context(file.open("rb"))
                if place.key is not None:
                    archive = opened.enter_context(zipfile.ZipFile(stream))
                    name = place.key if place.key in archive.namelist() else f"{place.key}.npy"
                    stream = opened.enter_context(archive.open(name))
                header = _header(stream)
        if stream is not None and header is not None and not header[0].hasobject:
            yield stream, *header
            return
        array = load(place)
        yield None, array.dtype, array.shape


def _header(stream: IO[bytes]) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return the dtype and shape of an `.npy` file; `None` for another file, or for a broken header."""
    try:
        version = np.lib.format.read_magic(stream)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read(stream)
    except Exception:  # noqa: BLE001 (whatever the bytes provoke: it is said as the array is loaded)
        return None
    return dtype, tuple(shape)


def _next_block(stream: IO[bytes], kind: np.dtype[Any], count: int) -> NDArray[np.generic]:
    try:
        content = stream.read(count * kind.itemsize)
    except Exception as error:  # as in `load`
        raise ArrayError(f"must be an array without pickled objects, but the file gave: {error}") from error
    if len(content) < count * kind.itemsize:
        raise ArrayError("must be an array without pickled objects, but the file is cut short")
    return np.frombuffer(content, kind) if kind.itemsize else np.empty(count, kind)


def _check_kind(kind: np.dtype[Any], dtype: str) -> None:
    if kind.kind not in KINDS[kind_of(dtype)]:
        raise ArrayError(f"must hold values for dtype {dtype}, but got an array of {kind}")


def require_fit(array: NDArray[np.generic], dtype: str) -> None:
    """Refuse an array whose values don't fit a dtype.

    Raises:
        ArrayError: some don't.
    """
    _check_kind(array.dtype, dtype)
    flat = array.ravel(order="K")
    for start in range(0, flat.size, _BLOCK):
        _check_values(flat[start : start + _BLOCK], dtype)


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
            size = np.abs(component.astype(np.float64, copy=False))
            if np.any(np.isfinite(size) & (size > LARGEST_FLOATS[dtype])):
                raise ArrayError(
                    f"must hold values of at most {LARGEST_FLOATS[dtype]:.6g} in size for dtype {dtype}"
                )


def check_domain(array: NDArray[np.generic], low: float | None, high: float | None) -> None:
    """Check that every value lies between two bounds, which are included.

    Raises:
        ArrayError: one doesn't.
    """
    if not array.size or array.dtype.kind not in "iuf" or (low is None and high is None):
        return
    least, most = array.min(), array.max()
    # `not (a <= b)` rather than `a > b`: NaN lies in no domain.
    if (low is not None and not least >= low) or (high is not None and not most <= high):
        bounds = f"{'-.inf' if low is None else show(low)} to {'.inf' if high is None else show(high)}"
        raise ArrayError(f"must stay inside the domain {bounds}, but holds values from {least} to {most}")


def as_lists(array: NDArray[Any]) -> object:
    """Return an array as a `value` of a spec: nested lists, with complex numbers as text such as `1+2j`."""
    if array.dtype.kind == "c":
        texts = np.array([str(element).strip("()") for element in array.ravel()], object)
        return texts.reshape(array.shape).tolist()
    if array.dtype.kind in "fV":  # also bfloat16
        return array.astype(np.float64).tolist()
    return array.tolist()
