"""What is written in a spec: plain mappings, lists and scalars that know where each value stands; for faults.

A mapping or list keeps the places of its values. So whatever is made of parts of several texts, by merging or
by writing out a short form, knows where each part is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, TypeAlias

from gradcheck_cli.errors import Fault

Path: TypeAlias = tuple[str | int, ...]
Data: TypeAlias = Any  # mappings, lists and scalars that are written


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


class Entries(dict[Any, Any]):
    """A mapping that knows where each of its values is written."""

    def __init__(self, values: Mapping[Any, Any], places: Mapping[Any, Place]) -> None:
        """Take the values, and their places by the same keys."""
        super().__init__(values)
        self.places = places
        # by what part of the format it was read, and as what; `None` before, or if it has faults
        self.reading: tuple[object, Data] | None = None

    def over(self, below: Entries) -> Entries:
        """Return these entries with those below them that have other keys."""
        return Entries({**below, **self}, {**below.places, **self.places})

    def of_keys(self, keys: Iterable[str]) -> Entries:
        """Return the entries of some keys, in their order."""
        keys = list(keys)
        return Entries({key: self[key] for key in keys}, {key: self.places[key] for key in keys})

    def without(self, *keys: str) -> Entries:
        """Return the entries of all keys but these."""
        return self.of_keys(key for key in self if key not in keys)


class Items(list[Any]):
    """A list that knows where each of its elements is written."""

    def __init__(self, values: Iterable[Any], places: Mapping[Any, Place]) -> None:
        """Take the elements, and their places by index."""
        super().__init__(values)
        self.places = places
        self.reading: tuple[object, Data] | None = None  # as `Entries` have it


def plain(written: Data) -> Data:
    """Return what is written without its places, for what outlives the reading of a spec."""
    if isinstance(written, dict):
        return {key: plain(value) for key, value in written.items()}
    return list(map(plain, written)) if isinstance(written, list) else written


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


class Written(NamedTuple):
    """A part of a spec, where it is written, and the log for its faults."""

    log: FaultLog
    data: Data
    place: Place

    def at(self, *path: str | int) -> Written:
        """Return what is at `path` below this one; its data is `None` if there is nothing.

        A word or number that stands for a list is its own element.
        """
        data, place = self.data, self.place
        for key in path:
            try:
                data, place = data[key], data.places[key]
            except (KeyError, IndexError, TypeError, AttributeError):
                if isinstance(key, str) or isinstance(data, Items | None):
                    place = place._replace(keys=(*place.keys, key))
                    data = None
        return Written(self.log, data, place)

    def having(self, **parts: Data) -> Written:
        """Return this mapping with other values of some keys, which may stand elsewhere."""
        written = {
            key: part if isinstance(part, Written) else self.at(key)._replace(data=part)
            for key, part in parts.items()
        }
        values = {key: part.data for key, part in written.items()}
        places = {key: part.place for key, part in written.items()}
        return self._replace(data=Entries(values, places).over(self.data))

    @property
    def entries(self) -> dict[str, Written]:
        """The entries of a mapping; empty for anything else."""
        return {key: self.at(key) for key in self.data} if isinstance(self.data, dict) else {}

    @property
    def items(self) -> list[Written]:
        """The elements of a list; empty for anything else."""
        return [self.at(index) for index in range(len(self.data))] if isinstance(self.data, list) else []

    def words(self, key: str) -> list[Any]:
        """Return the elements of a list under a key, or the one word in its place; else none."""
        data = self.at(key).data
        return [data] if isinstance(data, str) else data if isinstance(data, list) else []

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
