"""Tries what a spec may say about inputs until its forward runs: functions, layers and op types alike."""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gradcheck_cli import clock
from gradcheck_cli.errors import CaseFailedError, GradcheckError
from gradcheck_cli.features.init.candidates import BASES, TABLES, Says, choices_of, kind_of
from gradcheck_cli.features.init.draft import DEADLY, Draft
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.spec.values import draw_values
from gradcheck_cli.tensorflow_backend.openers import trace_alone

MayTry = Callable[[str], bool]

# Limits. A forward that is refused costs a few milliseconds.
_MOST_SECONDS = 20  # of processor time for a target
_MOST_BASES = 30
_MOST_BUILT = 100  # combinations for one shape of the first input
_MOST_ACCEPTED = 4  # of these
_MOST_READ = 4  # messages: those on the likeliest choices
_LARGEST_SIZE = 16  # that is taken from a message
HOPELESS = frozenset({"import", "attribute"})  # what is named doesn't exist: no values help
_NO_KERNEL = ("No OpKernel was registered", "Could not find device")
_DTYPES = {"float32": r"float32|\bfloat\b", "complex": r"complex"}  # kinds that a message may ask for
_IS_WHOLE = re.compile(r"allowed values: (\w+, )*int|(requested dtype|[Ee]xpect(ed|s)|must be) (an )?int")
_RANK = re.compile(r"(?:rank`?(?: must be at least)?|unpack \(expected) (\d)\b")
_NODE = re.compile(r" for '\{\{node.*")  # followed by the shapes that were tried


@dataclass
class Tryer:
    """Looks for inputs that a forward takes, and keeps why others were refused."""

    # says whether a draft may be run; not if that has ended a process before
    may_try: MayTry = lambda _text: True
    why_not: str = "no inputs that were tried are taken"  # the refusal that came furthest
    reached: int = -1
    refusals: list[str] = field(default_factory=list)  # of the latest shape of the first input
    first: Draft | None = None  # with the likeliest of everything
    accepted: int = 0
    is_over: bool = False  # no other inputs will help
    end: float = field(default_factory=lambda: clock.now() + _MOST_SECONDS)

    def refuse(self, message: str, reached: int) -> None:
        """Keep why inputs were refused; `reached` is how many were looked at."""
        self.refusals.append(_NODE.sub("", message))
        if reached > self.reached:
            self.reached, self.why_not = reached, message

    def try_all(self, drafts: Sequence[Draft]) -> Iterator[Draft]:
        """Yield drafts whose forward runs, the likeliest first, as they are asked for.

        One kind of numbers is tried after another, until one is taken. What messages say decides what comes
        next: a rank, a size, a dtype, whole numbers.
        """
        called = {name for draft in drafts for name in draft.called}
        calls = {kind for kind, names in TABLES["calls"].items() if not called.isdisjoint(names)}
        hints = {"whole"} & calls
        waiting = [*sorted(calls - hints), *TABLES["kinds_by_need"]]
        while waiting and not self.accepted:
            kind = waiting.pop(0)
            for draft in drafts:
                yield from self._try_shapes(draft, kind, hints)
            waiting.sort(key=lambda other: other not in hints)

    def _try_shapes(self, draft: Draft, kind: str, hints: set[str]) -> Iterator[Draft]:
        """Yield drafts for one shape of the first input after another."""
        tensors = draft.tensors()
        names = [tensor.name for tensor in tensors]
        bases, seen = _in_order(draft, names), list[Any]()
        while bases and len(seen) < _MOST_BASES and not self.is_over:
            base = bases.pop(0)
            state = (base, "whole" in hints)
            if state in seen:
                continue
            seen.append(state)
            self.refusals, before = [], self.accepted
            choices = [
                choices_of(tensor, base, kind, names, is_first=not index, whole=state[1])
                for index, tensor in enumerate(tensors)
            ]
            if all(choices):
                search = _Search(self, draft, choices)
                self.first = self.first or replace(search.draft(()), runs=False)
                for taken in itertools.islice(search.answers(), _MOST_ACCEPTED):
                    self.accepted += 1
                    yield taken
            self.is_over |= clock.now() > self.end
            text = " ".join(self.refusals[:_MOST_READ])
            if self.accepted > before:
                continue
            hints |= {dtype for dtype, pattern in _DTYPES.items() if re.search(pattern, text)}
            if _IS_WHOLE.search(text) and len(tensors) > 1 and not state[1]:
                hints.add("whole")
                bases.insert(0, base)
            if rank := _RANK.search(text):
                bases.sort(key=lambda other: len(other) != int(rank[1]))
            if base in BASES:
                bases[:0] = _resized(base, text)


def _in_order(draft: Draft, names: Sequence[str]) -> list[list[int]]:
    """Return shapes to begin with: matrices for a layer, whose first axis is the batch's, and for an axis."""
    has_axis = bool({*draft.keys.get("attrs", {}), *names} & {"axis", "dim", "dims", "axes"}) or any(
        kind_of(name, names) in {"row", "probabilities"} for name in names
    )
    if "variables" in draft.keys or has_axis:
        return sorted(BASES, key=lambda shape: len(shape) <= 1)
    return list(BASES)


def _resized(base: Sequence[int], text: str) -> list[list[int]]:
    """Return a shape with sizes that messages name, along one axis each."""
    sizes = {int(size) for size in re.findall(r"\b\d{1,2}\b", text)} - {0, 1}
    resized = [
        [*base[:axis], size, *base[axis + 1 :]]
        for axis in reversed(range(len(base)))
        for size in sorted(sizes)
        if size <= _LARGEST_SIZE
    ]
    return [shape for shape in resized if shape != list(base)]


@dataclass
class _Search:
    """Searches what is chosen for each input.

    Inputs are chosen one after another, and later ones have unknown shapes meanwhile. So a choice that is
    refused is never combined with choices for later inputs. The combinations closest to the likeliest one
    come first.
    """

    tryer: Tryer
    undecided: Draft
    choices: Sequence[Sequence[Says]]  # for each tensor what a spec may say, the likeliest first
    built: int = 0
    has_kernel: bool = True
    traced: Any = None  # the latest function that was traced, with its case

    def __post_init__(self) -> None:
        # Inputs with given values come first: as counts or indices, they determine the shapes of the others.
        places = range(len(self.choices))
        self.order = sorted(places, key=lambda index: "value" not in str(self.choices[index][:1]))

    def answers(self) -> Iterator[Draft]:
        """Yield drafts that run."""
        is_plain = len(self.order) > 1 and not any(made.parts for made in self.undecided.inputs)
        takes_unknown = is_plain and self._fits(())
        waiting: list[tuple[int, tuple[int, ...]]] = [(0, ())]  # how many likelier ones they pass over
        while waiting and self.has_kernel and not self.tryer.is_over and self.built < _MOST_BUILT:
            cost, chosen = heapq.heappop(waiting)
            if len(chosen) == len(self.order):
                if self._fits(chosen) and self._runs(chosen):
                    yield self.draft(chosen)
            elif not (chosen and takes_unknown) or self._fits(chosen):
                for index in range(len(self.choices[self.order[len(chosen)]])):
                    heapq.heappush(waiting, (cost + index, (*chosen, index)))

    def draft(self, chosen: Sequence[int]) -> Draft:
        """Return the draft with these choices, and the first ones for later inputs."""
        indices = dict(zip(self.order, chosen, strict=False))
        says = [choices[indices.get(index, 0)] for index, choices in enumerate(self.choices)]
        return self.undecided.filled(says)

    def _fits(self, chosen: tuple[int, ...]) -> bool:
        """Whether the forward can be traced with these choices, and unknown shapes for later inputs."""
        self.built += 1
        try:
            (case,) = load_mapping(self.draft(chosen).mapping())
        except GradcheckError:  # no spec may say so
            return False
        unknown = {self.order[position] for position in range(len(chosen), len(self.order))}
        try:
            self.traced = trace_alone(case, unknown), case
        except Exception as error:  # noqa: BLE001 (a refusal, of whatever kind)
            self._refuse(error, len(chosen))
            return False
        return True

    def _refuse(self, error: Exception, reached: int) -> None:
        message = error.message if isinstance(error, CaseFailedError) else str(error)
        self.tryer.refuse(message, reached)
        self.tryer.is_over = isinstance(error, CaseFailedError) and error.kind in HOPELESS
        self.has_kernel = not any(text in message for text in _NO_KERNEL)

    def _runs(self, chosen: tuple[int, ...]) -> bool:
        """Whether the traced forward takes these inputs and returns something."""
        if not self.tryer.may_try(self.draft(chosen).text()):
            self.tryer.why_not = DEADLY
            return False
        function, case = self.traced
        try:
            results = function([draw_values.draw(case, tensor, 0) for tensor in case.tensors])
        except CaseFailedError as error:
            self._refuse(error, len(chosen) + 1)
            return False
        # Some inputs may be whole numbers, but not all: there would be nothing to differentiate.
        return any(result.shape.num_elements() != 0 and not result.dtype.is_integer for result in results)
