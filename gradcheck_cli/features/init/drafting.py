"""Drafts a spec: describes the function, finds inputs that it takes, runs it, and mends what fails."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.features.init.draft import KINDS, MOST_TRIES, Draft, fits, kind_of, list_tries
from gradcheck_cli.results import GREEN, CaseError, CaseResult, PairResult, Status
from gradcheck_cli.running.session import list_pairs, run_case, start_tensorflow
from gradcheck_cli.spec.case import Case
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.spec.words import GENERATORS, VARYING_DTYPES
from gradcheck_cli.spec.yaml_tree import as_flow

MayTry = Callable[[str], bool]

_WIDTH = 100  # of the comments in the draft
_MOST_SECONDS = 8  # of processor time for the tries of one target
_MOST_RUN = 2  # of those with the same kind of values that can be opened; each takes a whole check
_ROWS = [2]  # the axis that a broadcast input lacks
# Values that some functions are meant for and for no others, the likeliest first.
_NARROW_KINDS = ("positive", "between 0 and 1", "positive definite", "between -1 and 1", "above 1")
_REASON = "is it meant for these inputs, too? its gradient differs from the derivative there"
_SKIPPED = {"*": {"expect": "skip", "reason": _REASON}}
_SHAPE_OF_GRADIENT = re.compile(r"must have shape \[.*?\], as its input has, but has \[(\d+(?:, \d+)*)\]")
_OTHER_SHAPES = ("", "scalars", "mixed", "mixed integers")  # kinds of tries that differ in shapes
_LACKS_SUM = "Sum it over the axes that broadcasting added"
_WRONG_COUNT = "gradient_count"
_HOPELESS = frozenset({"import", "attribute", _WRONG_COUNT})  # what is named doesn't exist: no values help
_NO_VARIABLES = "uses no trainable variable"


@dataclass(frozen=True)
class Drafted:
    """A draft, and the result of running it as it is."""

    draft: Draft
    result: CaseResult | None  # the result of running it, or of opening it if it can't be run
    why_not: str = "no shape that was tried is taken"  # why it wasn't run, if there is no result
    question: str = ""  # whether inputs with which it is wrong are meant, if it isn't wrong with these

    @property
    def pairs(self) -> tuple[PairResult, ...]:
        """The pairs of the result; none if there is no result."""
        return () if self.result is None else self.result.pairs

    @property
    def error(self) -> CaseError:
        """Why it can't be checked; an error of no kind if it can, or if there is no result."""
        error = None if self.result is None else self.result.error
        return error or CaseError("", "")

    @property
    def runs(self) -> bool:
        """Whether it can be opened, and has pairs."""
        return bool(self.pairs) and not self.error.kind

    @property
    def is_right(self) -> bool:
        """Whether a run of it ends with 0: something was tested, and nothing is wrong or undecided."""
        return self.result is not None and self.result.status is Status.PASSED and not self.question

    @property
    def lacks_arguments(self) -> bool:
        """Whether its gradient function returns another number of gradients: perhaps for defaults, too."""
        return self.error.kind == _WRONG_COUNT

    @property
    def needs_no_variables(self) -> bool:
        """Whether it says `variables: true`, and there are none."""
        return _NO_VARIABLES in self.error.message and "variables" in self.draft.keys

    @property
    def is_mismatched(self) -> bool:
        """Whether running it finds a wrong gradient: then the spec is as it should be."""
        return self.result is not None and self.result.status is Status.MISMATCHED

    @property
    def is_of_wrong_form(self) -> bool:
        """Whether a gradient has another shape than its input: other values won't help, other shapes may."""
        return any("form" in pair.mismatch for pair in self.pairs)

    @property
    def without_gradient(self) -> frozenset[str]:
        """The inputs of which its gradient function returns `None`: often labels, masks, weights."""
        connected = {pair.input for pair in self.pairs if pair.connected}
        return frozenset(pair.input for pair in self.pairs) - connected

    @property
    def lacks_sum(self) -> bool:
        """Whether a gradient has a shape that its input could be broadcast to."""
        return any(_LACKS_SUM in pair.message for pair in self.pairs)

    @property
    def says_something(self) -> bool:
        """Whether it finds a gradient right and none wrong, though not all may be decided."""
        return not self.is_mismatched and any(pair.status is Status.PASSED for pair in self.pairs)

    @property
    def rank(self) -> int:
        """How close it is to a right one: it should open, and leave as little as possible undecided."""
        if not self.runs:
            return 0 if self.result is None else 1
        return 2 + sum(pair.status is Status.PASSED for pair in self.pairs)

    def left_out(self, kind: str) -> Drafted:
        """Return it with a note that the time for tries ran out before values of a kind."""
        note = f"not tried, for lack of time ({_MOST_SECONDS} s): {kind or 'more'} values, and the rest"
        return replace(self, draft=replace(self.draft, notes=(note, *self.draft.notes)))

    @property
    def trouble(self) -> str:
        """Say why running it doesn't end with 0; empty if it does."""
        result = self.result
        if self.question:
            return self.question
        if result is None:
            return self.why_not
        if self.error.kind:
            return f"{self.error.kind}: {self.error.message}"
        troubles = [
            f"{pair.label} is {pair.status}: {_why(pair)}"
            for pair in result.pairs
            if pair.status not in GREEN
        ]
        troubles += [
            f"check {check.name} is {check.status}: {check.message}"
            for check in result.checks
            if check.status not in GREEN
        ]
        return "\n  ".join(troubles)


def _why(pair: PairResult) -> str:
    return pair.message or "; ".join(pair.cause.diagnosis) or pair.note or "see gradcheck run"


def draft_function(target: str, may_try: MayTry = lambda _call: True) -> Drafted:
    """Draft the spec of a function, layer or module.

    Args:
        may_try: whether the call that a text names may be run: it may not if it has ended a process before.

    Raises:
        CaseFailedError: it can't be imported, or isn't callable.
    """
    start_tensorflow()
    from gradcheck_cli.features.init.describe_function import describe
    from gradcheck_cli.tensorflow_backend.binding.users_code import importable
    from gradcheck_cli.tensorflow_backend.startup import settings

    with settings(), importable(str(Path.cwd())):
        draft = describe(target)
        decided = _find_decided(list_tries(draft), may_try)
        if decided is not None and decided.lacks_arguments:
            draft = describe(target, passes_defaults=True)
            decided = _find_decided(list_tries(draft), may_try)
        if decided is not None and decided.needs_no_variables:
            keys = {name: value for name, value in draft.keys.items() if name != "variables"}
            draft = replace(draft, keys=keys)
            decided = _find_decided(list_tries(draft), may_try)
        if decided is not None and decided.is_right:
            other = _find_decided(_broadcast(decided.draft), may_try, is_bonus=True) or decided
            decided = other if other.is_right else _ask(other, decided)
        elif decided is not None and decided.is_mismatched:
            decided = _find_right_inputs(decided, may_try)
        return _explain_in_draft(decided or Drafted(draft, None))


def _broadcast(draft: Draft) -> Iterator[tuple[str, Draft]]:
    """Yield drafts in which one input is broadcast: equal shapes hide a gradient that lacks a sum."""
    free = [index for index, made in enumerate(draft.inputs) if made.is_shaped and made.says["shape"]]
    shapes = [draft.inputs[index].says["shape"] for index in free]
    if len(free) < len(draft.inputs) or len(free) <= 1 or any(shape != shapes[0] for shape in shapes):
        return
    row = shapes[0][-1:]
    for broadcast in reversed(free):
        inputs = tuple(
            replace(
                made,
                says={**made.says, "shape": row if index == broadcast else _ROWS + row},
                is_broadcast=index == broadcast,
            )
            for index, made in enumerate(draft.inputs)
        )
        yield "broadcast", replace(draft, inputs=inputs)


def _find_right_inputs(wrong: Drafted, may_try: MayTry) -> Drafted:
    """Return a draft with inputs for which the gradient is right, and a question about those where it isn't.

    Inputs that a guess took may lie outside of what a function is meant for. A run of such a draft tests the
    first, skips the second, and doesn't exit with 0 before the question is answered.
    """
    for tried in _narrow(wrong):
        right = _try(tried, may_try)
        if right.is_right:
            return _ask(wrong, right)
    return wrong


def _ask(wrong: Drafted, right: Drafted) -> Drafted:
    """Return the right draft with the question whether the inputs of the wrong one are meant, too.

    The right one may also be one that only leaves something open.
    """
    both = zip(wrong.draft.inputs, right.draft.inputs, strict=True)
    differing = [(wide, own.says) for wide, own in both if wide.says != own.says]
    names = ", ".join(f"{wide.name}: {as_flow(wide.says)}" for wide, _ in differing)
    asked = {
        "name": "other_inputs",
        "inputs": {wide.name: _over(wide.says, below) for wide, below in differing},
        "pairs": _SKIPPED,  # a run says why
    }
    question = f"is it meant for {names}, too? There {wrong.trouble.splitlines()[0]}"
    return replace(right, draft=replace(right.draft, asked=asked), question=question)


def _over(says: Any, below: Any) -> Any:
    """Return an input as a case must write it, to replace what the op says about it."""
    if not isinstance(says, dict) or not isinstance(below, dict):
        return says
    dropped = set(below) - set(says)
    is_bare = dropped & GENERATORS.keys() and not GENERATORS.keys() & says
    drawn = {"normal": {"mean": 0, "stddev": 1}} if is_bare else {}
    switches = {"symmetric": False} if "symmetric" in dropped else {}
    return {**says, **drawn, **switches, **({"differentiate": True} if "differentiate" in dropped else {})}


def _narrow(wrong: Drafted) -> Iterator[Draft]:
    """Yield drafts with inputs that some functions are only meant for, such as square matrices."""
    draft = wrong.draft
    shaped = _with_equal_shapes(draft) if wrong.lacks_sum else _with_shapes_of_gradients(wrong)
    if shaped is not None:
        draft = shaped
        yield draft
    changes: list[Callable[[Any], Any]] = [
        _as_square,
        *(partial(_with_kind, kind=kind) for kind in _NARROW_KINDS),
    ]
    seen = [wrong.draft.inputs, draft.inputs]
    for change in changes:
        changed = draft.with_says(change, only=lambda made: made.is_guess)
        if changed.inputs not in seen:
            seen.append(changed.inputs)
            yield changed


def _with_equal_shapes(draft: Draft) -> Draft | None:
    """Return the draft with nothing broadcast, as if its gradient were only meant for that."""
    shapes = [says["shape"] for says in draft.tensors() if "shape" in says]
    largest = max(shapes, key=len)
    equal = draft.with_says(lambda says: {**says, "shape": largest}, only=lambda made: made.is_shaped)
    return equal if equal.inputs != draft.inputs else None


def _with_shapes_of_gradients(wrong: Drafted) -> Draft | None:
    """Return the draft with inputs as small as their gradients; `None` if none is smaller along an axis.

    A function of (n, 2) points that is called with (n, 3) may use two columns and return their gradients.
    """
    shapes = {
        pair.input: [int(size) for size in match[1].split(", ")]
        for pair in wrong.pairs
        if (match := _SHAPE_OF_GRADIENT.search(pair.message)) is not None
    }
    inputs = tuple(
        replace(made, says={**made.says, "shape": shapes[made.name]})
        if made.is_guess and made.name in shapes and _is_smaller(shapes[made.name], made.says)
        else made
        for made in wrong.draft.inputs
    )
    return replace(wrong.draft, inputs=inputs) if inputs != wrong.draft.inputs else None


def _is_smaller(shape: Sequence[int], says: Any) -> bool:
    """Whether a shape is as long as that of an input and nowhere larger."""
    own = says.get("shape", []) if isinstance(says, dict) else []
    return len(shape) == len(own) and all(0 < size <= most for size, most in zip(shape, own, strict=True))


def _as_square(says: Any) -> Any:
    """Return an input with matrices that are square; unchanged if it isn't one tensor of matrices."""
    shape = says.get("shape", []) if isinstance(says, dict) else []
    return {**says, "shape": [*shape[:-2], *[max(shape[-2:])] * 2]} if len(shape) > 1 else says


def draft_op_type(op_type: str, may_try: MayTry = lambda _call: True) -> Drafted:
    """Draft the spec of an op type.

    Raises:
        CaseFailedError: there is no such op type.
    """
    start_tensorflow()
    from gradcheck_cli.features.init.describe_op_type import describe_op_type

    drafts = describe_op_type(op_type, may_try)
    decided = _find_decided(_vary_kinds(drafts.accepted), may_try)
    return _explain_in_draft(decided or Drafted(drafts.first, None, drafts.why_not))


def _find_decided(
    tries: Iterator[tuple[str, Draft]], may_try: MayTry, *, is_bonus: bool = False
) -> Drafted | None:
    """Return the first candidate that is right or wrong; otherwise the one that came closest to that.

    A bonus is returned only if it is right or wrong.
    """
    best: Drafted | None = None
    ordinary: Drafted | None = None  # the first that ran and said something: its values are the likeliest
    runs: Counter[str] = Counter()
    end = clock.now() + _MOST_SECONDS
    for kind, tried in itertools.islice(tries, MOST_TRIES):
        if best is not None and clock.now() > end:
            return None if is_bonus else best.left_out(kind)
        if runs[kind] >= _MOST_RUN:  # other shapes of such values will be as undecided
            continue
        if best is not None and best.is_of_wrong_form and not best.lacks_sum and kind not in _OTHER_SHAPES:
            continue
        if not may_try(tried.text()):
            best = best or Drafted(tried, None, "it ends the process on some of the inputs that were tried")
            continue
        drafted = Drafted(tried, _run(tried, list_pairs))
        if drafted.error.kind in _HOPELESS or drafted.needs_no_variables:
            return drafted
        if drafted.runs:
            runs[kind] += 1
            named = _with_outputs(tried, drafted.result)
            drafted = Drafted(named, _run(named))
            decided = _decide(drafted, kind, ordinary, may_try)
            if decided is not None:
                return decided
            ordinary = ordinary or (drafted if drafted.says_something else None)
        if best is None or drafted.rank > best.rank:
            best = drafted
    return None if is_bonus else best


def _decide(drafted: Drafted, kind: str, ordinary: Drafted | None, may_try: MayTry) -> Drafted | None:
    """Return what is reported if a draft, or one with labels in it, is right or wrong; `None` otherwise."""
    held = _hold(drafted, kind, may_try)
    if held is not None or not _is_decided(drafted, kind):
        return held
    # A mismatch for values that were only tried because the likeliest left something open.
    is_odd = drafted.is_mismatched and kind in KINDS
    return _ask(drafted, ordinary) if is_odd and ordinary is not None else drafted


def _hold(drafted: Drafted, kind: str, may_try: MayTry) -> Drafted | None:
    """Return a draft that doesn't differentiate by the inputs whose gradient is `None`; `None` if none helps.

    They are mostly labels and masks, and a right gradient may be wrong for any but 0 and 1. Whether the
    `None` is meant is asked. If other gradients are wrong even so, it is the draft that shows that.
    """
    wrong: Drafted | None = None
    for tried in _list_held(drafted, kind) if drafted.without_gradient else ():
        held = _try(tried, may_try)
        if held.is_right:
            return _ask(wrong or drafted, held)
        if wrong is None and held.is_mismatched and _is_decided(held, kind):
            wrong = held
    return wrong


def _list_held(drafted: Drafted, kind: str) -> Iterator[Draft]:
    """Yield drafts whose inputs without a gradient are 0 or 1, drawn or one-hot, or as they are."""
    names = drafted.without_gradient
    are_labels = any(kind_of(name, names) == "probabilities" for name in names)
    changes = (_as_one_hot, _as_mask) if are_labels else (_as_mask, _as_one_hot)
    for change in (*changes, dict):
        held = drafted.draft.with_says(
            partial(_hold_as, change=change),
            only=lambda made: made.name in names and isinstance(made.says, dict),
        )
        if change is changes[0] and kind in KINDS and kind:  # the others as plain as can be
            yield held.with_says(lambda says: {"shape": says["shape"]}, only=lambda made: made.is_shaped)
        yield held


def _hold_as(says: Mapping[str, Any], change: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    return {**change(says), "differentiate": False}


def _as_mask(says: Mapping[str, Any]) -> dict[str, Any]:
    """Return an input of 0 and 1, with one 0 in each row: a softmax of the only 1 would be constant."""
    shape = says.get("shape")
    if not shape or 0 in shape:
        return {**says}
    zeros = [(row + 1) % shape[-1] for row in range(math.prod(shape[:-1]))]
    values = [[float(column != zero) for column in range(shape[-1])] for zero in zeros]
    return {"value": np.reshape(values, shape).tolist(), **_float_of(says)}


def _as_one_hot(says: Mapping[str, Any]) -> dict[str, Any]:
    shape = says.get("shape")
    return {"shape": shape, "one_hot": True, **_float_of(says)} if shape else {**says}


def _float_of(says: Mapping[str, Any]) -> dict[str, Any]:
    return {"dtype": says["dtype"]} if says.get("dtype", "complex").startswith("float") else {}


def _explain_in_draft(drafted: Drafted) -> Drafted:
    """Write into the draft why running it doesn't end with 0, unless the gradient is wrong."""
    if drafted.is_right or drafted.is_mismatched or drafted.question:
        return drafted
    begin = "as it is, a run doesn't exit with 0:" if drafted.runs else "it doesn't run as it is:"
    lines = [line for text in (begin, *drafted.trouble.splitlines()) for line in textwrap.wrap(text, _WIDTH)]
    return replace(drafted, draft=replace(drafted.draft, notes=(*lines, *drafted.draft.notes)))


def _vary_kinds(drafts: Iterator[Draft]) -> Iterator[tuple[str, Draft]]:
    """Yield (kind of values, draft): inputs of these shapes, with one kind of numbers after another."""
    drafts_so_far = []
    for draft in drafts:
        drafts_so_far.append(draft)
        yield "", draft
    for kind, draft in itertools.product([kind for kind in KINDS if kind], drafts_so_far):
        varied = draft.with_says(partial(_with_kind, kind=kind))
        if varied.inputs != draft.inputs:
            yield kind, varied


def _with_kind(says: Any, kind: str) -> Any:
    """Return an input with numbers of a kind; unchanged if its values or its dtype leave no choice."""
    if isinstance(says, list):
        return [_with_kind(element, kind) for element in says]
    shape, made = says.get("shape"), {}
    if shape is not None and set(says) <= {"shape", "dtype"} and fits(kind, shape):
        made = KINDS[kind](shape)
    if says.get("dtype", "float64") not in VARYING_DTYPES:
        return says
    return {**made, **says}


def _is_decided(drafted: Drafted, kind: str) -> bool:
    """Whether other values won't show more: everything is right, or some number is clearly wrong.

    Gradients that are infinite or `None` may be so only outside a domain; and if one triangle of a matrix is
    read, symmetric values may help. A sum is lacking only where shapes differ: of equal ones, nothing is
    broadcast but what the function isn't meant to take, such as a matrix in place of a vector; and scalars
    are tried for functions that take them, not to find what all others lack.
    """
    result = drafted.result
    if result is None:
        return False
    wrong = [pair for pair in result.pairs if pair.mismatch == "value"]
    one_triangle = any("symmetric: true" in text for pair in wrong for text in pair.cause.diagnosis)
    shapes = {str(says["shape"]) for says in drafted.draft.tensors() if "shape" in says}
    if drafted.lacks_sum:
        return len(shapes) > 1 and kind != "scalars"
    if drafted.is_of_wrong_form:
        return _with_shapes_of_gradients(drafted) is not None
    return result.status is Status.PASSED or (bool(wrong) and not one_triangle)


def _run(draft: Draft, check: Callable[[Case], CaseResult] = run_case) -> CaseResult | None:
    """Run a draft, or have its case checked in another way; `None` if it isn't a valid spec."""
    try:
        (case,) = load_mapping(draft.mapping())
    except GradcheckError:
        return None
    return check(case)


def _try(draft: Draft, may_try: MayTry) -> Drafted:
    return Drafted(draft, _run(draft) if may_try(draft.text()) else None)


def _with_outputs(draft: Draft, result: CaseResult | None) -> Draft:
    """Return the draft with its outputs named, if there are several: those that have gradients."""
    names = list(dict.fromkeys(pair.output for pair in result.pairs)) if result is not None else []
    plain = all(name.isidentifier() for name in names)
    whole = result is not None and not result.how.not_differentiated
    if len(names) <= 1 or "outputs" in draft.keys or not plain or not whole:
        return draft
    remarks = {**draft.remarks, "outputs": "what forward returns, in order: choose names"}
    return replace(draft, keys={**draft.keys, "outputs": names}, remarks=remarks)
