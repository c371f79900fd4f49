"""Drafts a spec: describes the function, finds inputs that it takes, runs it, and mends what fails."""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.results import Status
from gradcheck_cli.running.session import list_pairs, run_case, start_tensorflow
from gradcheck_cli.spec.drafts import guesses
from gradcheck_cli.spec.dtype_names import VARYING_DTYPES
from gradcheck_cli.spec.load import load_mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from gradcheck_cli.results import CaseResult, PairResult
    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.spec.drafts.draft import Draft, DraftInput

    MayTry = Callable[[str], bool]

_WIDTH = 100  # of the comments in the draft
_MOST_OPENED = 250  # tries; each takes a trace
_MOST_RUN = 2  # of those with the same kind of values that can be opened; each takes a whole check
_HOPELESS = frozenset({"import", "attribute", "gradient_count"})
_NO_VARIABLES = "uses no trainable variable"


@dataclass(frozen=True)
class Drafted:
    """A draft, and the result of running it as it is.

    Attributes:
        draft: the spec.
        found: the result of running it, or of opening it if it can't be run.
        why_not: why it wasn't run, if there is no result.
    """

    draft: Draft
    found: CaseResult | None
    why_not: str = "no shape that was tried is taken"

    @property
    def runs(self) -> bool:
        """Whether it can be opened, and has pairs."""
        return self.found is not None and self.found.error is None and bool(self.found.pairs)

    @property
    def is_right(self) -> bool:
        """Whether a run of it ends with 0: something was tested, and nothing is wrong or undecided."""
        return self.found is not None and self.found.status is Status.PASSED

    @property
    def is_hopeless(self) -> bool:
        """Whether no values will help: what is named doesn't exist."""
        return self.found is not None and self.found.error is not None and self.found.error.kind in _HOPELESS

    @property
    def needs_no_variables(self) -> bool:
        """Whether it says `variables: true`, and there are none."""
        error = self.found.error if self.found is not None else None
        return error is not None and _NO_VARIABLES in error.message and "variables" in self.draft.keys

    @property
    def is_mismatched(self) -> bool:
        """Whether running it finds a wrong gradient: then the spec is as it should be."""
        return self.found is not None and self.found.status is Status.MISMATCHED

    @property
    def trouble(self) -> str:
        """Say why running it doesn't end with 0; empty if it does."""
        found = self.found
        if found is None:
            return self.why_not
        if found.error is not None:
            return f"{found.error.kind}: {found.error.message}"
        told = [
            f"{pair.label} is {pair.status}: {_why(pair)}" for pair in found.pairs if pair.status not in _FINE
        ]
        told += [
            f"check {one.name} is {one.status}: {one.message}"
            for one in found.checks
            if one.status not in _FINE
        ]
        return "\n  ".join(told)


_FINE = (Status.PASSED, Status.EXPECTED_MISMATCH)


def _why(pair: PairResult) -> str:
    return pair.message or "; ".join(pair.diagnosis) or pair.note or "see gradcheck run"


def draft_function(target: str, may_try: MayTry = lambda _call: True) -> Drafted:
    """Draft the spec of a function, layer or module.

    Args:
        target: `module:attribute`, importable from the working directory.
        may_try: whether the call that a text names may be run: it may not if it has ended a process before.

    Raises:
        CaseFailedError: it can't be imported, or isn't callable.
    """
    start_tensorflow()
    from gradcheck_cli.tensorflow_backend.binding.loading import importable
    from gradcheck_cli.tensorflow_backend.registry.describe_function import describe
    from gradcheck_cli.tensorflow_backend.startup import settings

    with settings(), importable(str(Path.cwd())):
        draft = describe(target)
        found = _first_decided(_tries(draft), may_try)
        if found is not None and found.needs_no_variables:
            draft = draft.without_key("variables")
            found = _first_decided(_tries(draft), may_try)
        return _explain_in_draft(found or Drafted(draft, None))


def draft_op_type(op_type: str, may_try: MayTry = lambda _call: True) -> Drafted:
    """Draft the spec of an op type.

    Args:
        op_type: TensorFlow's name for it.
        may_try: as above.

    Raises:
        CaseFailedError: there is no such op type.
    """
    start_tensorflow()
    from gradcheck_cli.tensorflow_backend.registry.describe_op_type import describe_op_type

    drafts = describe_op_type(op_type, may_try)
    found = _first_decided(_kinds_of(drafts.accepted), may_try)
    return _explain_in_draft(found or Drafted(drafts.first, None, drafts.why_not))


def _first_decided(tries: Iterator[tuple[str, Draft]], may_try: MayTry) -> Drafted | None:
    """Return the first candidate that is right or wrong; otherwise the one that came closest to that."""
    best: Drafted | None = None
    runs: Counter[str] = Counter()
    for kind, tried in itertools.islice(tries, _MOST_OPENED):
        if runs[kind] >= _MOST_RUN:  # other shapes of such values will be as undecided
            continue
        if not may_try(tried.text()):
            best = best or Drafted(tried, None, "it ends the process on some of the inputs that were tried")
            continue
        drafted = Drafted(tried, _opened(tried))
        if drafted.is_hopeless or drafted.needs_no_variables:
            return drafted
        if drafted.runs:
            runs[kind] += 1
            named = _with_outputs(tried, drafted.found)
            drafted = Drafted(named, _run(named))
            if _is_decided(drafted.found):
                return drafted
        if best is None or _rank(drafted) > _rank(best):
            best = drafted
    return best


def _explain_in_draft(drafted: Drafted) -> Drafted:
    """Write into the draft why running it doesn't end with 0, unless the gradient is wrong."""
    if drafted.is_right or drafted.is_mismatched:
        return drafted
    begin = "as it is, a run doesn't exit with 0:" if drafted.runs else "it doesn't run as it is:"
    told = [line for text in (begin, *drafted.trouble.splitlines()) for line in textwrap.wrap(text, _WIDTH)]
    return replace(drafted, draft=replace(drafted.draft, notes=(*told, *drafted.draft.notes)))


def _kinds_of(drafts: Iterator[Draft]) -> Iterator[tuple[str, Draft]]:
    """Yield (kind of values, draft): inputs of these shapes, with one kind of numbers after another."""
    known = []
    for draft in drafts:
        known.append(draft)
        yield "", draft
    for kind, draft in itertools.product([kind for kind in guesses.KINDS if kind], known):
        inputs = tuple(replace(one, says=_of_kind(one.says, kind)) for one in draft.inputs)
        if inputs != draft.inputs:
            yield kind, replace(draft, inputs=inputs)


def _of_kind(says: Any, kind: str) -> Any:  # noqa: ANN401 (what a spec says about an input)
    """Return an input with numbers of a kind; unchanged if its values or its dtype leave no choice."""
    if isinstance(says, list):
        return [_of_kind(one, kind) for one in says]
    shape, made = says.get("shape"), {}
    if shape is not None and set(says) <= {"shape", "dtype"} and guesses.fits(kind, shape):
        made = guesses.KINDS[kind](shape)
    if says.get("dtype", "float64") not in VARYING_DTYPES:
        return says
    return {**made, **says}


def _is_decided(found: CaseResult | None) -> bool:
    """Whether other values won't show more: everything is right, or some number is clearly wrong.

    Gradients that are infinite or `None` may be so only outside a domain; and if one triangle of a matrix is
    read, symmetric values may help.
    """
    if found is None:
        return False
    wrong = [pair for pair in found.pairs if pair.mismatch == "value"]
    one_triangle = any("symmetric: true" in text for pair in wrong for text in pair.diagnosis)
    return found.status is Status.PASSED or (bool(wrong) and not one_triangle)


def _rank(drafted: Drafted) -> int:
    """Rate how close a draft is to a right one: it should open, and leave as little as possible undecided."""
    if drafted.found is None or not drafted.runs:
        return 0 if drafted.found is None else 1
    passed = sum(pair.status is Status.PASSED for pair in drafted.found.pairs)
    return 2 + passed


def _tries(draft: Draft) -> Iterator[tuple[str, Draft]]:
    """Yield (kind of values, draft), every guess filled in: all inputs of one shape, then each of its own."""
    seen = set()
    mixed = (("mixed", inputs) for _, inputs in _by_kind(draft, mixed=True))
    for kind, inputs in itertools.chain(_by_kind(draft), _with_integers(draft), mixed):
        key = repr([one.says for one in inputs])
        if key not in seen:
            seen.add(key)
            yield kind, replace(draft, inputs=inputs)


def _by_kind(draft: Draft, *, mixed: bool = False) -> Iterator[tuple[str, tuple[DraftInput, ...]]]:
    shapes = list(guesses.SHAPES)
    names = [name for one in draft.inputs for name in (one.parts or [one.name])]
    if _takes_an_axis(draft):
        shapes.sort(key=lambda shape: len(shape) <= 1)  # matrices first
    tensors = [part for one in draft.inputs for part in (one.parts.values() or [one])]
    kinds = ["", "float32"] if mixed else guesses.kinds_for(draft.called)
    for kind in kinds:
        choices = [
            [_guessed(one, kind, shape, names) for shape in shapes if guesses.fits(kind, shape)]
            for one in tensors
        ]
        together: Iterator[tuple[DraftInput, ...]] = zip(*choices, strict=True) if choices else iter([()])
        each = itertools.islice(itertools.product(*choices), _MOST_OPENED // 3)
        yield from ((kind, _regrouped(draft.inputs, chosen)) for chosen in (each if mixed else together))


def _regrouped(inputs: Sequence[DraftInput], chosen: Sequence[DraftInput]) -> tuple[DraftInput, ...]:
    """Return the inputs with chosen tensors, of which a structure takes several."""
    left = iter(chosen)
    return tuple(
        one.with_parts(itertools.islice(left, len(one.parts))) if one.parts else next(left) for one in inputs
    )


def _takes_an_axis(draft: Draft) -> bool:
    names = {*draft.mapping().get("attrs", {}), *(one.name for one in draft.inputs)}
    return bool(names & {"axis", "dim", "dims", "axes"}) or any(
        guesses.kind_of(one.name, names) in {"row", "probabilities"} for one in draft.inputs
    )


def _guessed(one: DraftInput, kind: str, shape: list[int], names: Collection[str] = ()) -> DraftInput:
    """Return an input with a guess for what isn't known about it."""
    if isinstance(one.says, list):  # a list input: its elements are alike
        elements = [{**guesses.KINDS[kind](shape), **part} for part in one.says]
        return replace(one, says=elements, is_guess=True)
    if one.parts:
        return one.with_parts(_guessed(part, kind, shape, names) for part in one.parts.values())
    says = one.says or {}
    if "shape" in says or "value" in says or "object" in says:
        return one
    if says.get("dtype", "").startswith(("int", "uint")) or guesses.kind_of(one.name, names) == "integers":
        value = guesses.INTEGERS[guesses.SHAPES.index(shape)]
        return replace(one, says={"dtype": "int32", **says, "value": value}, is_guess=True)
    if "dtype" in says:
        made = guesses.KINDS[kind](shape)
        return replace(one, says={**made, **says}, is_guess=True)
    by_name = None if kind not in {"", "float32"} else guesses.guess_for(guesses.kind_of(one.name, names))
    made = (by_name or guesses.KINDS[kind])(shape)
    if kind == "float32" and "dtype" not in made:
        made = {**made, "dtype": "float32"}
    return replace(one, says=made, is_guess=True)


def _with_integers(draft: Draft) -> Iterator[tuple[str, tuple[DraftInput, ...]]]:
    """Yield drafts in which one or two inputs of unknown dtype are whole numbers."""
    unknown = [place for place, one in enumerate(draft.inputs) if not one.says]
    names = [one.name for one in draft.inputs]
    subsets = [*itertools.combinations(unknown, 1), *itertools.combinations(unknown, 2)]
    for chosen in reversed(subsets):
        if len(chosen) == len(draft.inputs):
            continue
        shapes, values = guesses.SHAPES[:4], guesses.INTEGERS[:6]
        for shape, value in (*zip(shapes, values, strict=False), *itertools.product(shapes, values)):
            yield (
                "integers",
                tuple(
                    replace(one, says={"value": value, "dtype": "int32"}, is_guess=True)
                    if place in chosen
                    else _guessed(one, "", shape, names)
                    for place, one in enumerate(draft.inputs)
                ),
            )


def _opened(draft: Draft) -> CaseResult | None:
    case = _case(draft)
    return None if case is None else list_pairs(case)


def _run(draft: Draft) -> CaseResult | None:
    case = _case(draft)
    return None if case is None else run_case(case)


def _case(draft: Draft) -> Case | None:
    try:
        (case,) = load_mapping(draft.mapping())
    except GradcheckError:
        return None
    return case


def _with_outputs(draft: Draft, found: CaseResult | None) -> Draft:
    """Return the draft with its outputs named, if there are several: those that have gradients."""
    names = list(dict.fromkeys(pair.output for pair in found.pairs)) if found is not None else []
    plain = all(name.isidentifier() for name in names)
    whole = found is not None and not found.not_differentiated
    if len(names) <= 1 or "outputs" in draft.keys or not plain or not whole:
        return draft
    return draft.with_key("outputs", names, "what forward returns, in order: choose names")
