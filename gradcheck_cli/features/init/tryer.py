"""Tries what a spec may say about inputs until its forward runs: functions, layers and op types alike."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gradcheck_cli import clock
from gradcheck_cli.errors import CaseFailedError, GradcheckError
from gradcheck_cli.features.init.candidates import BASES, TABLES, Says, choices_of_tensor, kind_of
from gradcheck_cli.features.init.draft import Draft, DraftInput
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.spec.values import draw_values
from gradcheck_cli.tensorflow_backend.openers import trace_alone

MayTry = Callable[[str], bool]

# Limits. A forward that is refused costs a few milliseconds.
_MOST_SECONDS = 20  # of processor time until some inputs are taken
_MOST_BASES = 30
_MOST_COST = 60
_MOST_READ = 4  # messages: those on the likeliest choices
_LARGEST_SIZE = 16  # that is taken from a message
HOPELESS = frozenset({"import", "attribute"})  # what is named doesn't exist: no values help
_NO_KERNEL = ("No OpKernel was registered", "Could not find device")
_DTYPES = {"float32": r"float32|\bfloat\b", "complex": r"complex"}  # kinds that a message may ask for
_IS_WHOLE = re.compile(r"allowed values: (\w+, )*int|(requested dtype|[Ee]xpect(ed|s)|must be) (an )?int")
_RANK = re.compile(r"(?:rank`?(?: must be at least)?|unpack \(expected) (\d)\b")
_NODE = re.compile(r" for '\{\{node.*")  # followed by the shapes that were tried


@dataclass(frozen=True)
class Round:
    """A draft whose inputs aren't decided, and the choices for each of its tensors."""

    draft: Draft
    choices: Sequence[Sequence[Says]]  # for each tensor what a spec may say, the likeliest first
    most_built: int = 60
    most_accepted: int = 4


def fill(draft: Draft, chosen: Iterable[Says]) -> Draft:
    """Return the draft with what it says about each tensor."""
    left = (
        replace(tensor, says=says, is_guess=True) if says != tensor.says else tensor
        for tensor, says in zip(draft.tensors(), chosen, strict=True)
    )
    inputs = [
        made.with_parts(itertools.islice(left, len(made.parts))) if made.parts else next(left)
        for made in draft.inputs
    ]
    return replace(draft, inputs=tuple(inputs))


@dataclass
class Tryer:
    """Looks for inputs that a forward takes, and keeps why others were refused."""

    # says whether a draft may be run; not if that has ended a process before
    may_try: MayTry = lambda _text: True
    why_not: str = "no inputs that were tried are taken"  # the refusal that came furthest
    reached: int = -1
    refusals: list[str] = field(default_factory=list)  # since they were last emptied
    first: Draft | None = None  # with the likeliest of everything
    accepted: int = 0
    is_over: bool = False  # no other inputs will help
    end: float = field(default_factory=lambda: clock.now() + _MOST_SECONDS)

    def refuse(self, message: str, reached: int) -> None:
        """Keep why inputs were refused; `reached` is how many were looked at."""
        self.refusals.append(_NODE.sub("", message))
        if reached > self.reached:
            self.reached, self.why_not = reached, message

    def try_all(self, rounds: Iterable[Round]) -> Iterator[Draft]:
        """Yield drafts whose forward runs, the likeliest first, as they are asked for."""
        for each in rounds:
            search = _Search(self, each)
            self.first = self.first or replace(search.draft(()), runs=False)
            for draft in itertools.islice(search.answers(), each.most_accepted):
                self.accepted += 1
                yield draft
            if self.is_over or (not self.accepted and clock.now() > self.end):
                return

    # How a function's inputs are chosen.

    def rounds_of_function(self, draft: Draft) -> Iterator[Round]:
        """Yield rounds for a function: for each kind of numbers, shapes of the first input.

        What messages say decides what comes next: a rank, a size, a dtype, whole numbers.
        """
        calls = {kind for kind, names in TABLES["calls"].items() if not draft.called.isdisjoint(names)}
        hints = {"whole"} & calls
        waiting = [*sorted(calls - hints), *TABLES["kinds_by_need"]]
        while waiting:
            kind = waiting.pop(0)
            yield from self._rounds_of_kind(draft, kind, hints)
            if self.accepted:
                waiting = []
            waiting.sort(key=lambda other: other not in hints)

    def _rounds_of_kind(self, draft: Draft, kind: str, hints: set[str]) -> Iterator[Round]:
        tensors = draft.tensors()
        names = [tensor.name for tensor in tensors]
        bases, seen = _in_order(draft, tensors), list[Any]()
        while bases and len(seen) < _MOST_BASES:
            base = bases.pop(0)
            state = (base, "whole" in hints)
            if state in seen:
                continue
            seen.append(state)
            self.refusals, before = [], self.accepted
            choices = [
                choices_of_tensor(tensor, base, kind, names, is_first=not index, whole=state[1])
                for index, tensor in enumerate(tensors)
            ]
            if all(choices):
                yield Round(draft, choices)
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


def _in_order(draft: Draft, tensors: Sequence[DraftInput]) -> list[list[int]]:
    """Return shapes to begin with: matrices for a layer, whose first axis is the batch's, and for an axis."""
    names = {*draft.keys.get("attrs", {}), *(tensor.name for tensor in tensors)}
    has_axis = bool(names & {"axis", "dim", "dims", "axes"}) or any(
        kind_of(tensor.name, names) in {"row", "probabilities"} for tensor in tensors
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
    """Searches one round.

    Inputs are chosen one after another, and later ones have unknown shapes meanwhile. So a choice that is
    refused is never combined with choices for later inputs. The combinations closest to the likeliest one
    come first.
    """

    tryer: Tryer
    round: Round
    built: int = 0
    has_kernel: bool = True
    takes_unknown: bool | None = None
    traced: Any = None  # the latest function that was traced, with its case
    allowed: dict[tuple[int, ...], bool] = field(default_factory=dict)  # whether choices fit, so far

    def __post_init__(self) -> None:
        # Inputs with given values come first: as counts or indices, they determine the shapes of the others.
        choices = self.round.choices
        self.order = sorted(range(len(choices)), key=lambda index: "value" not in str(choices[index][:1]))

    def answers(self) -> Iterator[Draft]:
        """Yield drafts that run."""
        for chosen in itertools.chain.from_iterable(self._combine((), cost) for cost in range(_MOST_COST)):
            if self._fits(chosen) and self._runs(chosen):
                yield self.draft(chosen)
            if self.tryer.is_over or not self.has_kernel or self.built >= self.round.most_built:
                return

    def _combine(self, chosen: tuple[int, ...], cost: int) -> Iterator[tuple[int, ...]]:
        """Yield the combinations that begin with these choices and pass over `cost` likelier ones."""
        if len(chosen) == len(self.order):
            if cost == 0:
                yield chosen
            return
        count = len(self.round.choices[self.order[len(chosen)]])
        for index in range(min(cost + 1, count)):
            longer = (*chosen, index)
            if len(longer) < len(self.order) and self._is_asked_early():
                if longer not in self.allowed:
                    self.allowed[longer] = self._fits(longer)
                if not self.allowed[longer]:
                    continue
            yield from self._combine(longer, cost - index)

    def _is_asked_early(self) -> bool:
        """Whether the forward can be traced with inputs of unknown shape."""
        if self.takes_unknown is None:
            is_plain = not any(made.parts for made in self.round.draft.inputs)
            self.takes_unknown = is_plain and self._fits(())
        return self.takes_unknown

    def draft(self, chosen: Sequence[int]) -> Draft:
        """Return the draft with these choices, and the first ones for later inputs."""
        indices = dict(zip(self.order, chosen, strict=False))
        says = [choices[indices.get(index, 0)] for index, choices in enumerate(self.round.choices)]
        return fill(self.round.draft, says)

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
            self.tryer.why_not = "it ends the process on some of the inputs that were tried"
            return False
        function, case = self.traced
        try:
            results = function([draw_values.draw(case, tensor, 0) for tensor in case.tensors])
        except CaseFailedError as error:
            self._refuse(error, len(chosen) + 1)
            return False
        # Some inputs may be whole numbers, but not all: there would be nothing to differentiate.
        return any(result.shape.num_elements() != 0 and not result.dtype.is_integer for result in results)
