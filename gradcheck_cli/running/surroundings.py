"""What a run is made with, beside TensorFlow and Python: versions and the platform, for its report."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TypedDict


class Surroundings(TypedDict):
    """Fields of a `Report`."""

    keras_version: str
    numpy_version: str
    platform: str


def surroundings() -> Surroundings:
    """Return the fields of a `Report` that say so; nothing is imported to find out."""
    return {
        "keras_version": _version("keras"),
        "numpy_version": _version("numpy"),
        "platform": f"{platform.system()}-{platform.release()}-{platform.machine()}",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
