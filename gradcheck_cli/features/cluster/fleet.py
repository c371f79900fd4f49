"""The workers of a Dask cluster, as far as they are known: versions, resources, and which can't be used."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from gradcheck_cli import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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

    `Client.get_versions` would import it, into the process of the worker. For Python only the first two parts
    are returned: the rest never changes a result.
    """
    python = ".".join(platform.python_version_tuple()[:2])
    installed = (python, __version__, _installed_version("numpy"), _installed_version(*_TENSORFLOW))
    return dict(zip(NAMES, installed, strict=True))


def _installed_version(*names: str) -> str:
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return MISSING


@dataclass
class Member:
    """A worker.

    Attributes:
        name: its name and host, for messages.
        threads: how many tasks it runs at a time.
        resources: the names of the resources that it offers.
        versions: its versions; `None` until it has told them.
        trouble: why it isn't used any more; empty if it is.
    """

    name: str
    threads: int
    resources: frozenset[str]
    versions: Mapping[str, str] | None = None
    trouble: str = ""


@dataclass
class Fleet:
    """The workers of a cluster, and the rule for failures: whoever can't run a document isn't used again.

    Attributes:
        allows_skew: whether versions of packages other than gradcheck may differ from those here.
        members: those that are there now, by address.
        avoided: what has failed on workers, those that are gone too: name -> reason.
        offered: the resources that any worker has offered so far.
    """

    allows_skew: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    avoided: dict[str, str] = field(default_factory=dict)
    offered: frozenset[str] = frozenset()

    def update(self, workers: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[str]]:
        """Take over what the scheduler says about its workers; return the addresses of new and lost ones."""
        fresh = [address for address in workers if address not in self.members]
        lost = [address for address in self.members if address not in workers]
        for address in lost:
            del self.members[address]
        for address in fresh:
            facts = workers[address]
            resources = frozenset(facts.get("resources") or ())
            name = f"{facts.get('name', address)} on {facts.get('host', address)}"
            self.members[address] = Member(name, int(facts.get("nthreads", 1)), resources)
            self.offered |= resources
        return fresh, lost

    def learn(self, address: str, answer: object) -> None:
        """Note the versions that a worker has told, or that asking it has failed: it has no gradcheck."""
        if address not in self.members:
            return
        if isinstance(answer, OSError):
            self.avoid(address, f"it can't be reached: {answer}")
            return
        told = answer if isinstance(answer, dict) else dict.fromkeys(NAMES, "?") | {"gradcheck": MISSING}
        self.members[address].versions = told
        if not self._is_fit(told):
            here = versions()
            marks = (
                f"{name} {told[name]} instead of {here[name]}" for name in NAMES if told[name] != here[name]
            )
            self.avoid(address, f"it has {', '.join(marks)}")

    @property
    def is_known(self) -> bool:
        """Whether there are workers, and each of them has told its versions or can't be used."""
        members = self.members.values()
        return bool(members) and all(member.versions is not None or member.trouble for member in members)

    def avoid(self, address: str, reason: str) -> None:
        """Don't use a worker any more."""
        if address in self.members and not self.members[address].trouble:
            self.members[address].trouble = reason
            self.avoided[self.members[address].name] = reason

    def name_of(self, address: str) -> str:
        """Return a worker's name and host; its address if it is gone."""
        return self.members[address].name if address in self.members else address

    def able(self, needs: Iterable[str], without: Iterable[str] = ()) -> list[str]:
        """Return the addresses of the workers that may be used.

        Args:
            needs: names of resources that are needed, if any worker has ever offered them.
            without: addresses of further workers to leave out.
        """
        required = self.offered.intersection(needs)
        return [
            address
            for address, member in self.members.items()
            if member.versions is not None
            and not member.trouble
            and required <= member.resources
            and address not in without
        ]

    def why_nobody(self, needs: Iterable[str]) -> str:
        """Say why no worker can run something that needs resources."""
        lacking = self.offered.intersection(needs) - {
            name for member in self.members.values() for name in member.resources
        }
        if lacking:
            return f"no worker that offers {' and '.join(sorted(lacking))} is left"
        if not self.members:
            return "no worker is left"
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self.avoided.items())
        return f"no worker can run them: {reasons or 'none answers'}"

    def _is_fit(self, told: Mapping[str, str]) -> bool:
        here = versions()
        if self.allows_skew:  # cases are sent as Python objects, so gradcheck must be the same
            return told["gradcheck"] == here["gradcheck"] and MISSING not in told.values()
        return told == here

    def complaint(self) -> str:
        """Say which workers can't be used because of their versions, as a table; empty if all can."""
        told_by = {address: member.versions for address, member in self.members.items() if member.versions}
        if all(map(self._is_fit, told_by.values())):
            return ""
        here = versions()
        rows = [["worker", *NAMES], ["(here)", *(here[name] for name in NAMES)]]
        for address, there in sorted(told_by.items()):
            marks = (there[name] if there[name] == here[name] else f"{there[name]} !" for name in NAMES)
            rows.append([address, *marks])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        table = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        if any(MISSING in there.values() for there in told_by.values()):
            head = "lack what a case needs"
            advice = "Install what is missing in the environment that the workers start in."
        else:
            head = "have other versions than this machine"
            advice = "Install the same versions there"
            advice += (
                ": gradcheck must be the same even with --allow-version-skew."
                if self.allows_skew
                else ", or say --allow-version-skew: results may differ then."
            )
        return "\n".join([f"Dask workers {head}:", *table, advice])
