"""Compares a Dask worker's versions with those here, before anything runs there."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from gradcheck_cli import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distributed import Worker

NAMES = ("Python", "gradcheck", "NumPy", "TensorFlow")
MISSING = "none"
# The names under which TensorFlow is distributed.
_TENSORFLOW = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "tf-nightly",
    "tensorflow-rocm",
    "tensorflow-macos",
)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions of this process's packages, from their metadata: TensorFlow isn't imported.

    For Python only the first two parts are returned: the rest never changes a result.
    """
    python = ".".join(platform.python_version_tuple()[:2])
    return dict(
        zip(
            NAMES,
            (python, __version__, _installed_version("numpy"), _installed_version(*_TENSORFLOW)),
            strict=True,
        )
    )


def _installed_version(*names: str) -> str:
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return MISSING


def describe(dask_worker: Worker) -> dict[str, Any]:
    """Return the versions and the resources of the Dask worker that runs this."""
    return {"versions": versions(), "resources": sorted(dask_worker.state.total_resources)}


@dataclass(frozen=True)
class Fleet:
    """What the workers of a cluster reported about themselves.

    Attributes:
        versions: each worker's versions, by address.
        resources: the names of the resources that some worker offers.
    """

    versions: Mapping[str, Mapping[str, str]]
    resources: frozenset[str]

    @classmethod
    def of(cls, answers: Mapping[str, Any]) -> Fleet:
        """Read what `describe` returned for each address, or the exception that its call ended with."""
        facts = {address: answer for address, answer in answers.items() if isinstance(answer, dict)}
        nothing = dict.fromkeys(NAMES, "?") | {"gradcheck": MISSING}
        return cls(
            {
                address: facts[address]["versions"] if address in facts else nothing
                for address in sorted(answers)
            },
            frozenset(name for answer in facts.values() for name in answer["resources"]),
        )

    def complaint(self, *, allows_skew: bool = False) -> str:
        """Say which workers can't be used, and why, as a table; empty if all can.

        Args:
            allows_skew: whether versions may differ. A missing package is always reported.
        """
        here = versions()
        lacking = any(there[name] == MISSING for there in self.versions.values() for name in NAMES)
        differing = any(there != here for there in self.versions.values())
        if not (lacking or (differing and not allows_skew)):
            return ""
        rows = [["worker", *NAMES], ["(here)", *(here[name] for name in NAMES)]]
        for address, there in self.versions.items():
            marks = (there[name] if there[name] == here[name] else f"{there[name]} !" for name in NAMES)
            rows.append([address, *marks])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        table = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        advice = (
            "Install what is missing in the environment that the workers start in."
            if lacking
            else "Install the same versions there, or say --allow-version-skew: results may differ then."
        )
        head = "lack what a case needs" if lacking else "have other versions than this machine"
        return "\n".join([f"Dask workers {head}:", *table, advice])
