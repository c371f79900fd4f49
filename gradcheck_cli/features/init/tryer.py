"""Tries what a spec may say about inputs until its forward runs: functions, layers and op types alike."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gradcheck_cli import clock
from gradcheck_cli.errors import CaseFailedError, GradcheckError
from gradcheck_cli.features.init.candidates import BASES, TABLES, Says, choices_of, kind_of, nearest
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
    reached: int = -1  # 0 where the forward couldn't be traced, 1 where it couldn't be run
    refusals: list[str] = field(default_factory=list)  # of the latest shape of the first input
    first: Draft | None = None  # with the likeliest of everything
    accepted: int = 0
    is_over: bool = False  # no other inputs will help
    end: float = field(default_factory=lambda: clock.now() + _MOST_SECONDS)

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
                choices_of(tensor, base, kind, is_first=not index, whole=state[1])
                for index, tensor in enumerate(tensors)
            ]
            if all(choices):
                self.first = self.first or replace(draft.filled(next(nearest(choices))), runs=False)
                for taken in itertools.islice(self._search(draft, choices), _MOST_ACCEPTED):
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

    def _search(self, draft: Draft, choices: Sequence[Sequence[Says]]) -> Iterator[Draft]:
        """Yield drafts that run, of those with what is chosen for each tensor; the likeliest first."""
        for chosen in itertools.islice(nearest(choices), _MOST_BUILT):
            filled = draft.filled(chosen)
            if self._runs(filled):
                yield filled
            elif self.is_over or any(text in why for text in _NO_KERNEL for why in self.refusals[-1:]):
                return

    def _runs(self, draft: Draft) -> bool:
        """Whether the forward takes these inputs and returns something; keep why it doesn't."""
        try:
            (case,) = load_mapping(draft.mapping())
        except GradcheckError:  # no spec may say so
            return False
        reached = 0
        try:
            function = trace_alone(case)
            if not self.may_try(draft.text()):
                self.why_not = DEADLY
                return False
            reached = 1
            results = function([draw_values.draw(case, tensor, 0) for tensor in case.tensors])
        except Exception as error:  # noqa: BLE001 (a refusal, of whatever kind)
            self._refuse(error, reached)
            return False
        # Some inputs may be whole numbers, but not all: there would be nothing to differentiate.
        return any(result.shape.num_elements() != 0 and not result.dtype.is_integer for result in results)

    def _refuse(self, error: Exception, reached: int) -> None:
        message = error.message if isinstance(error, CaseFailedError) else str(error)
        self.refusals.append(_NODE.sub("", message))
        if reached > self.reached:
            self.reached, self.why_not = reached, message
        self.is_over = isinstance(error, CaseFailedError) and error.kind in HOPELESS


def _in_order(draft: Draft, names: Sequence[str]) -> list[list[int]]:
    """Return shapes to begin with: matrices for a layer, whose first axis is the batch's, and for an axis."""
    has_axis = bool({*draft.keys.get("attrs", {}), *names} & {"axis", "dim", "dims", "axes"}) or any(
        kind_of(name) in {"row", "probabilities"} for name in names
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
