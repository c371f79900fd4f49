"""The workers of a cluster: which may be used, for what, and why others aren't."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from distributed.versions import get_versions

# What must be equal -> the names under which it is distributed.
_DISTRIBUTIONS = {
    "Python": ("python",),
    "gradcheck": ("gradcheck-cli",),
    "NumPy": ("numpy",),
    "TensorFlow": (
        "tensorflow",
        "tensorflow-cpu",
        "tensorflow-gpu",
        "tf-nightly",
        "tensorflow-rocm",
        "tensorflow-macos",
    ),
}
PACKAGES = [name for names in _DISTRIBUTIONS.values() for name in names if name != "python"]
_MISSING = "none"
_ASKED = "it hasn't told its versions"


def named_versions(told: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions that matter, of what Dask's `get_versions(PACKAGES)` tells.

    It reads metadata, and imports nothing. Of Python's version only the first two parts are returned: the
    rest never changes a result.
    """
    packages = told["packages"]
    versions = {
        name: next((packages[own] for own in names if packages.get(own)), _MISSING)
        for name, names in _DISTRIBUTIONS.items()
    }
    return versions | {"Python": ".".join(versions["Python"].split(".")[:2])}


@cache
def own_versions() -> dict[str, str]:
    """Return the versions on this machine."""
    return named_versions(get_versions(PACKAGES))


@dataclass
class Member:
    """A worker."""

    name: str  # its name and host, for messages
    threads: int  # how many tasks it runs at a time
    resources: frozenset[str]  # the names of the resources that it offers
    trouble: str = _ASKED  # why it isn't used; empty if it is


@dataclass
class Fleet:
    """The workers of a cluster, and the rule for failures: whoever can't run a document isn't used again."""

    allows_skew: bool = False  # whether versions of packages other than gradcheck may differ from those here
    members: dict[str, Member] = field(default_factory=dict)  # those that are there now, by address
    # what has failed on workers, those that are gone too: name -> reason
    avoided: dict[str, str] = field(default_factory=dict)
    offered: frozenset[str] = frozenset()  # the resources that any worker has offered so far

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

    def learn(self, address: str, told: object) -> None:
        """Use a worker if it has the versions that are wanted."""
        if address not in self.members:
            return
        if not isinstance(told, dict):
            self.avoid(address, f"it can't be asked for its versions: {told}")
            return
        here, there = own_versions(), named_versions(told)
        # Cases are sent as Python objects, so gradcheck must be the same.
        differing = [
            f"no {name}" if there[name] == _MISSING else f"{name} {there[name]} instead of {here[name]}"
            for name in _DISTRIBUTIONS
            if there[name] != here[name]
            and not (self.allows_skew and name != "gradcheck" and there[name] != _MISSING)
        ]
        if differing:
            self.avoid(address, f"it has {', '.join(differing)}")
        else:
            self.members[address].trouble = ""

    @property
    def is_known(self) -> bool:
        """Whether there are workers, and each of them has told its versions or can't be used."""
        members = self.members.values()
        return bool(members) and all(member.trouble != _ASKED for member in members)

    def avoid(self, address: str, reason: str) -> None:
        """Don't use a worker any more."""
        if address in self.members and self.members[address].trouble in ("", _ASKED):
            self.members[address].trouble = reason
            self.avoided[self.members[address].name] = reason

    def able(self, needs: Iterable[str], without: Iterable[str] = ()) -> list[str]:
        """Return the addresses of the workers that may be used, without some.

        What a document needs counts only if any worker has ever offered it.
        """
        required = self.offered.intersection(needs)
        return [
            address
            for address, member in self.members.items()
            if not member.trouble and required <= member.resources and address not in without
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
