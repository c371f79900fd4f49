"""What is written in a spec, as plain data, and where: for faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeAlias

from gradcheck_cli.errors import Fault
from gradcheck_cli.spec.words import EXCEPTIONS, PAIR_EXPECTATIONS, TWO_NUMBERS

Path: TypeAlias = tuple[str | int, ...]


class Unreadable(Exception):  # noqa: N818 (control flow of those who read)
    """A part of a spec has faults, which are logged, so that it can't be read."""


_WORDED = (*PAIR_EXPECTATIONS, *EXCEPTIONS)  # keys of short forms, each of which stands for two others


class Spot(NamedTuple):
    """A line, and the columns of it from which and before which something stands."""

    line: int = 0  # 0 for a file as a whole
    start: int = 0
    stop: int = 0


NOWHERE = Spot()


class Mark(NamedTuple):
    """Where a value stands (a list, mapping or null that begins below its key: the key), its parts."""

    spot: Spot
    key: Spot
    parts: Mapping[str | int, Mark] = MappingProxyType({})  # by the keys of a mapping, the indices of a list
    kind: type = str  # dict, list, or str for any scalar

    def find(self, path: Path) -> tuple[Mark, Path, Path]:
        """Return the mark at a path, or the nearest above it.

        The path is that of a long form. What a short form stands for has the place of the short form.

        Returns:
            The mark, the keys on the way to it as they are written, and the rest of the path, which isn't
            written.
        """
        mark: Mark = self
        keys: Path = ()
        for number, key in enumerate(path):
            written = key if key in mark.parts else mark._short(key, path[number - 1])
            if written is None:
                return mark, keys, path[number:]
            if written in mark.parts:
                mark, keys = mark.parts[written], (*keys, written)
        return mark, keys, ()

    def _short(self, key: str | int, above: str | int) -> str | int | None:
        """Return what stands for a key that isn't written: a word, a place in a list, or -1 for the whole."""
        if self.kind is dict:
            words = {"reason": _WORDED, "expect": ("mismatch",)}.get(str(key), ())
            word = next((word for word in words if word in self.parts), None)
            return -1 if word and key == "expect" else word
        if self.kind is str:
            return -1 if isinstance(key, int) or key in ("expect", "value") else None
        ends = TWO_NUMBERS.get(str(above), ())
        is_shape = key == "shape" and not any(part.parts for part in self.parts.values())
        return ends.index(str(key)) if key in ends else -1 if is_shape or key == "value" else None


class Text(NamedTuple):
    """A part of a document: its file, its place there, and its marks."""

    path: str
    place: Path
    mark: Mark


@dataclass
class FaultLog:
    """The faults of files, each once: several cases, and several dtypes of a case, read the same text."""

    count: int = 0  # of those added, repeated ones too: while it stays the same, what is read is sound
    faults: dict[Fault, None] = field(default_factory=dict)  # in the order in which they were found
    # places about which nothing more is said
    settled: set[tuple[str, int, str]] = field(default_factory=set)

    def add(self, path: str, message: str, spot: Spot = NOWHERE, place: Path = ()) -> None:
        """Add a fault."""
        fault = Fault(path, spot.line, show_place(place), message, (spot.start, spot.stop))
        if (path, spot.line, fault.place) not in self.settled:
            self.count += 1
            self.faults[fault] = None

    def settle(self, path: str, message: str, spot: Spot, place: Path) -> None:
        """Add a fault after which nothing more is said about its place."""
        self.add(path, message, spot, place)
        if place:
            self.settled.add((path, spot.line, show_place(place)))


class Written(NamedTuple):
    """Plain data, and where it is written: in one text, or merged from several, the uppermost first.

    `path` leads from the texts to the data. `moved` says where a part is written that has left its place.
    """

    log: FaultLog
    data: Any
    texts: tuple[Text, ...]
    path: Path = ()
    moved: tuple[tuple[Path, Path], ...] = ()

    def at(self, *path: str | int) -> Written:
        """Return what is at `path` below this one; its data is `None` if there is nothing."""
        data = self.data
        for key in path:
            try:
                data = data[key]
            except (KeyError, IndexError, TypeError):
                data = None
        return self._replace(data=data, path=self.path + path)

    def without(self, key: str) -> Written:
        """Return this mapping without an entry."""
        return self._replace(data={other: part for other, part in self.data.items() if other != key})

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

    def alone(self) -> Written:
        """Return this part as a document of its own, with the texts that hold it."""
        marks = [(text, *text.mark.find(self.path)) for text in self.texts]
        texts = [Text(text.path, text.place + keys, mark) for text, mark, keys, left in marks if not left]
        return Written(self.log, self.data, tuple(texts or [self.find()[0]]))

    def over(self, below: Written | None, merge: Callable[[Any, Any], Any]) -> Written:
        """Return this document merged over another one."""
        if below is None:
            return self
        data, texts = merge(below.data, self.data), self.texts + below.texts
        return Written(self.log, data, texts, moved=self.moved + below.moved)

    def find(self, *path: str | int) -> tuple[Text, bool]:
        """Return where `path` below this one is written, or would be, and whether it is there.

        What a mapping lacks isn't there, although a text may have it: what stands above has replaced that.
        """
        data, count = self.data, 0
        while count < len(path) and not (
            isinstance(data, dict) and not {path[count], *_WORDED} & data.keys()
        ):
            data, count = self.at(*path[: count + 1]).data, count + 1
        path, rest = self.path + path[:count], path[count:]
        ways = [new + path[len(old) :] for old, new in self.moved if path[: len(old)] == old]
        marks = [(text, *text.mark.find(way)) for text in self.texts for way in (*ways, path)]
        text, mark, keys, left = min(marks, key=lambda candidate: len(candidate[3]))
        return Text(text.path, text.place + keys + left + rest, mark), not (left or rest)

    @property
    def line(self) -> int:
        """The line of this part, or of the nearest above it that is written."""
        return self.find()[0].mark.spot.line

    def add(self, message: str, *path: str | int) -> None:
        """Log a fault of this part, or of what should be at `path` below it."""
        text, _ = self.find(*path)
        self.log.add(text.path, message, text.mark.spot, text.place)

    def refuse(self, message: str, *path: str | int) -> NoReturn:
        """Log a fault like `add`, and leave the part that has it.

        Raises:
            Unreadable: always.
        """
        self.add(message, *path)
        raise Unreadable

    def add_key(self, message: str, key: str) -> None:
        """Log a fault of the key of an entry, rather than its value."""
        text, is_there = self.find(key)
        self.log.add(text.path, message, text.mark.key if is_there else text.mark.spot, text.place)


def show_place(place: Path) -> str:
    """Write the place of a value in a document: `cases[0].inputs.x`."""
    # A fault is one line.
    keys = (key if isinstance(key, int) or key.isprintable() else repr(key)[1:-1] for key in place)
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")
