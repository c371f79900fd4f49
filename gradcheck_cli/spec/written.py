"""What is written in a spec: mappings, lists and scalars, each with the place where it stands; for faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, TypeAlias

from gradcheck_cli.errors import Fault

Path: TypeAlias = tuple[str | int, ...]
Data: TypeAlias = Any  # what is written: mappings, lists and scalars


class Unreadable(Exception):  # noqa: N818 (control flow of those who read)
    """A part of a spec has faults, which are logged, so that it can't be read."""


class Spot(NamedTuple):
    """A line, and the columns of it from which and before which something stands."""

    line: int = 0  # 0 for a file as a whole
    start: int = 0
    stop: int = 0


class Place(NamedTuple):
    """Where a value is written, and its key (a list, mapping or null that begins below its key: the key)."""

    path: str
    keys: Path = ()
    spot: Spot = Spot()
    key: Spot = Spot()


@dataclass
class FaultLog:
    """The faults of files, each once: several cases, and several dtypes of a case, read the same text."""

    count: int = 0  # of those added, repeated ones too: while it stays the same, what is read is sound
    faults: dict[Fault, None] = field(default_factory=dict)  # in the order in which they were found
    # places about which nothing more is said
    settled: set[tuple[str, int, str]] = field(default_factory=set)

    def add(self, message: str, place: Place, *, at_key: bool = False) -> None:
        """Add a fault of a value, or of its key."""
        spot = place.key if at_key else place.spot
        fault = Fault(place.path, spot.line, show_place(place.keys), message, (spot.start, spot.stop))
        if (fault.path, fault.line, fault.place) not in self.settled:
            self.count += 1
            self.faults[fault] = None

    def settle(self, message: str, place: Place) -> None:
        """Add a fault after which nothing more is said about its place."""
        self.add(message, place)
        if place.keys:
            self.settled.add((place.path, place.spot.line, show_place(place.keys)))


@dataclass(eq=False, slots=True)
class Written:
    """A part of a spec, where it is written, and the log for its faults.

    The parts of a mapping or list are of this class, too. So what is made of parts of several texts, by
    merging or by writing out a short form, knows where each part is written.
    """

    log: FaultLog
    data: Data  # a mapping or list of parts, or a scalar
    place: Place
    # by what part of the format it was read, and as what; `None` before, or if it has faults
    reading: tuple[object, Any] | None = None

    def having(self, data: Data) -> Written:
        """Return other data in this place."""
        return Written(self.log, data, self.place)

    def without(self, *keys: str) -> Written:
        """Return this mapping without the entries of some keys."""
        return self.having({key: part for key, part in self.data.items() if key not in keys})

    def at(self, *path: str | int) -> Written:
        """Return what is at `path` below this one; its data is `None` if there is nothing.

        A word or number that stands for a list is its own element.
        """
        part = self
        for key in path:
            data = part.data
            if key in data if isinstance(data, dict) else isinstance(data, list) and key in range(len(data)):
                part = data[key]
            elif isinstance(key, str) or data is None or isinstance(data, list):
                part = Written(self.log, None, part.place._replace(keys=(*part.place.keys, key)))
        return part

    @property
    def entries(self) -> dict[str, Written]:
        """The entries of a mapping; empty for anything else."""
        return self.data if isinstance(self.data, dict) else {}

    @property
    def items(self) -> list[Written]:
        """The elements of a list; empty for anything else."""
        return self.data if isinstance(self.data, list) else []

    def plain(self) -> Data:
        """Return what is written without its places, for what outlives the reading of a spec."""
        if isinstance(self.data, dict):
            return {key: part.plain() for key, part in self.data.items()}
        return [part.plain() for part in self.data] if isinstance(self.data, list) else self.data

    def add(self, message: str, *path: str | int) -> None:
        """Log a fault of this part, or of what should be at `path` below it."""
        self.log.add(message, self.at(*path).place)

    def refuse(self, message: str, *path: str | int) -> NoReturn:
        """Log a fault like `add`, and leave the part that has it.

        Raises:
            Unreadable: always.
        """
        self.add(message, *path)
        raise Unreadable

    def add_key(self, message: str, key: str) -> None:
        """Log a fault of the key of an entry, rather than its value."""
        self.log.add(message, self.at(key).place, at_key=True)


def show_place(keys: Path) -> str:
    """Write the place of a value in a document: `cases[0].inputs.x`."""
    # A fault is one line.
    texts = (key if isinstance(key, int) or key.isprintable() else repr(key)[1:-1] for key in keys)
    return "".join(f"[{text}]" if isinstance(text, int) else f".{text}" for text in texts).removeprefix(".")
