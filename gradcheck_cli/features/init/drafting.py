"""Drafts a spec: describes the function, finds inputs that it takes, runs it, and mends what fails."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.features.init.candidates import KINDS, TABLES, choices_of_op_type, kind_of, with_kind
from gradcheck_cli.features.init.draft import Draft, DraftInput
from gradcheck_cli.results import GREEN, CaseError, CaseResult, PairResult, Status
from gradcheck_cli.running.session import run_case, start_tensorflow
from gradcheck_cli.spec.load import load_mapping
from gradcheck_cli.spec.words import GENERATORS
from gradcheck_cli.spec.yaml_tree import as_flow

if TYPE_CHECKING:
    from gradcheck_cli.features.init.tryer import MayTry, Tryer

_WIDTH = 100  # of the comments in the draft
_MOST_SECONDS = 8  # of processor time for runs of one target, after the first
_MOST_DRAFTS = 10  # whose forward runs; each takes a whole check
_MOST_VARIED = 2  # of which numbers of every kind are tried
_ROWS = [2]  # the axis that a broadcast input lacks
_REASON = "is it meant for these inputs, too? its gradient differs from the derivative there"
_SKIPPED = {"*": {"expect": "skip", "reason": _REASON}}
_GIVE_INPUTS_AND_ATTRS = "Give inputs and attrs that the op takes, then run it: gradcheck run FILE."
_GIVE_INPUTS = (
    "Give inputs that the function takes, with 'shape', 'dtype' or 'value', and what isn't a tensor under "
    "'attrs'; then run it: gradcheck run FILE."
)
_IS_NUMPY = "binding: py_func"  # what a message recommends then
_LACKS_SUM = "Sum it over the axes that broadcasting added"
_NO_VARIABLES = "uses no trainable variable"
_NOT_A_SETTING = re.compile(r"the gradient for the setting (\w+) must be None or zero")


@dataclass(frozen=True)
class Drafted:
    """A draft, and the result of running it as it is."""

    draft: Draft
    result: CaseResult | None  # the result of running it, or of opening it if it can't be run
    why_not: str = ""  # why it wasn't run, if there is no result
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
    def is_mismatched(self) -> bool:
        """Whether running it finds a wrong gradient: then the spec is as it should be."""
        return self.result is not None and self.result.status is Status.MISMATCHED

    @property
    def passed(self) -> int:
        """How many pairs pass."""
        return sum(pair.status is Status.PASSED for pair in self.pairs)

    @property
    def is_of_wrong_form(self) -> bool:
        """Whether a gradient has another shape or dtype than its input: other values won't help."""
        return any("form" in pair.mismatch for pair in self.pairs)

    @property
    def without_gradient(self) -> frozenset[str]:
        """The inputs of which its gradient function returns `None`: often labels, masks, weights."""
        connected = {pair.input for pair in self.pairs if pair.connected}
        return frozenset(pair.input for pair in self.pairs) - connected

    @property
    def lacks_sum(self) -> bool:
        """Whether a gradient has a shape that its input could be broadcast to."""
        return [] not in self.draft.shapes() and any(_LACKS_SUM in pair.message for pair in self.pairs)

    def explain(self) -> list[str]:
        """Say why running it doesn't end with 0, and what to do if it doesn't run."""
        begin = "The first run finds:" if self.runs else "This draft doesn't run yet:"
        if self.question:
            begin = "it ends with a question, and a run exits with 3 until you answer it there:"
        lines = [begin, *self.trouble.splitlines()]
        if self.trouble.startswith("gradient"):  # no inputs help there
            lines.append("Mend that, then run it: gradcheck run FILE.")
        elif not self.runs:
            is_op_type = "op_type" in self.draft.keys and "forward" not in self.draft.keys
            lines.append(_GIVE_INPUTS_AND_ATTRS if is_op_type else _GIVE_INPUTS)
        return lines

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
            f"{pair.label} is {pair.status}: "
            + (pair.message or "; ".join(pair.cause.diagnosis) or pair.note or "see gradcheck run")
            for pair in result.pairs
            if pair.status not in GREEN
        ]
        troubles += [
            f"check {check.name} is {check.status}: {check.message}"
            for check in result.checks
            if check.status not in GREEN
        ]
        return "\n".join(troubles)


def draft(target: str, may_try: MayTry = lambda _text: True) -> Drafted:
    """Draft the spec of a function, method, layer or module, `module:attribute`, or of an op type.

    Args:
        may_try: whether the draft that a text is may be run: not if that has ended a process before.

    Raises:
        CaseFailedError: it doesn't exist, can't be imported, or isn't callable.
    """
    start_tensorflow()
    from gradcheck_cli.features.init.tryer import Tryer
    from gradcheck_cli.tensorflow_backend.startup import settings
    from gradcheck_cli.tensorflow_backend.users_code import importable

    with settings(), importable(str(Path.cwd())):
        if ":" not in target:
            drafted = _of_op_type(target, Tryer(may_try))
        else:
            drafted = _of_function(target, Tryer(may_try))
            if _IS_NUMPY in drafted.why_not:
                drafted = _of_function(target, Tryer(may_try), is_numpy=True)
        return _explain_in_draft(drafted)


def _of_function(target: str, tryer: Tryer, *, is_numpy: bool = False) -> Drafted:
    from gradcheck_cli.features.init.describe_function import describe

    described = describe(target, is_numpy=is_numpy)
    drafts = tryer.try_all(tryer.rounds_of_function(described))
    decided = _find_decided(drafts, tryer)
    if decided is None:
        return Drafted(tryer.first or described, None, tryer.why_not)
    if decided.is_right:
        return _broadcast(decided, tryer)
    return _find_right_inputs(decided, drafts, tryer) if decided.is_mismatched else decided


def _of_op_type(op_type: str, tryer: Tryer) -> Drafted:
    from gradcheck_cli.features.init.describe_op_type import describe_op_type
    from gradcheck_cli.features.init.tryer import Round

    drafts, why_not = describe_op_type(op_type)
    rounds = [
        Round(draft, [with_kind(says, kind) for says in choices], most_built=300, most_accepted=3)
        for kind in ("", "positive definite")
        for draft in drafts
        for choices in [[choices_of_op_type(made.name, made.says) for made in draft.inputs]]
    ]
    decided = None if why_not else _find_decided(tryer.try_all(rounds), tryer)
    return decided or Drafted(tryer.first or drafts[0], None, why_not or tryer.why_not)


def _with_kind(draft: Draft, kind: str, only: Callable[[DraftInput], bool] = lambda _: True) -> Draft:
    """Return the draft with numbers of a kind; a layer that is drafted in float64 has their dtype."""
    made = draft.with_says(partial(with_kind, kind=kind), only)
    if kind == "float32" and "dtype" in draft.keys.get("build", {}):
        return replace(made, keys={**draft.keys, "build": {**draft.keys["build"], "dtype": kind}})
    return made


def _broadcast(right: Drafted, tryer: Tryer) -> Drafted:
    """Return a draft in which one input is broadcast, if that decides: equal shapes hide a missing sum."""
    inputs = right.draft.inputs
    shapes = [made.says["shape"] for made in inputs if made.is_shaped]
    if len(shapes) < len(inputs) or len(shapes) <= 1 or not all(shape == shapes[0] != [] for shape in shapes):
        return right
    row = shapes[0][-1:]
    for broadcast in reversed(inputs):
        changed = (
            replace(
                made,
                says={**made.says, "shape": row if made is broadcast else _ROWS + row},
                is_broadcast=made is broadcast,
            )
            for made in inputs
        )
        tried = _try(replace(right.draft, inputs=tuple(changed)), tryer)
        if tried.is_right:
            return tried
        if tried.lacks_sum or _is_decided(tried):
            return _ask(tried, right)
    return right


def _find_right_inputs(wrong: Drafted, drafts: Iterator[Draft], tryer: Tryer) -> Drafted:
    """Return a draft with inputs for which the gradient is right, and a question about those where it isn't.

    Inputs that a guess took may lie outside of what a function is meant for. A run of such a draft tests the
    first, skips the second, and doesn't exit with 0 before the question is answered. Other shapes have the
    same ranks: a function of vectors isn't wrong since it is wrong for matrices.
    """
    alike = [made for made in itertools.islice(drafts, _MOST_VARIED) if _ranks(made) == _ranks(wrong.draft)]
    alike = [_with_equal_shapes(wrong.draft)] if wrong.lacks_sum else alike
    kinds = [
        _with_kind(made, kind, only=lambda made: made.is_guess)
        for made in (wrong.draft, *alike[:1])
        for kind in (["float32"] if wrong.is_of_wrong_form and not wrong.lacks_sum else TABLES["narrow"])
    ]
    well_formed: Drafted | None = None
    for tried in (*alike, *kinds):
        if tried.inputs == wrong.draft.inputs:
            continue
        right = _try(tried, tryer)
        if right.is_right:
            return _ask(wrong, right)
        if well_formed is None and wrong.is_of_wrong_form and right.runs and not right.is_mismatched:
            well_formed = right
    return wrong if well_formed is None else _ask(wrong, well_formed)


def _with_equal_shapes(draft: Draft) -> Draft:
    """Return the draft with nothing broadcast, as if its gradient were only meant for that."""
    largest = max(filter(None, draft.shapes()), key=len)
    return draft.with_says(lambda says: {**says, "shape": largest}, only=lambda made: made.is_shaped)


def _ranks(draft: Draft) -> list[int]:
    return [len(shape or ()) for shape in draft.shapes()]


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
    others = {"symmetric": False, "differentiate": True, "dtype": "float64"}  # what an input is by default
    return {**says, **drawn, **{key: value for key, value in others.items() if key in dropped}}


def _find_decided(drafts: Iterator[Draft], tryer: Tryer) -> Drafted | None:
    """Return the first draft that is right or wrong; otherwise the one that came closest to that.

    Where numbers leave it open, one kind of them after another is tried, and then other shapes.
    """
    best: Drafted | None = None
    ordinary: Drafted | None = None  # the first that ran and said something: its values are the likeliest
    end = clock.now() + _MOST_SECONDS
    for index, draft in enumerate(itertools.islice(drafts, _MOST_DRAFTS)):
        drafted = Drafted(draft, None)
        for kind in KINDS if index < _MOST_VARIED else [""]:
            tried = _with_kind(draft, kind)
            if best is not None and clock.now() > end:
                kinds = f"{kind or 'more'} values and the rest"
                note = f"not tried, for lack of time ({_MOST_SECONDS} s): {kinds}"
                return replace(best, draft=replace(best.draft, notes=(note, *best.draft.notes)))
            is_vain = drafted.error.kind and kind not in drafted.error.message
            if kind and (tried == draft or is_vain or drafted.is_of_wrong_form):
                continue
            drafted = _try(tried, tryer)
            decided = _decide(drafted, kind, ordinary, tryer) if drafted.runs else None
            if decided is not None:
                return decided
            if ordinary is None and drafted.passed and not drafted.is_mismatched:
                ordinary = drafted
            if best is None or (drafted.runs, drafted.passed) > (best.runs, best.passed):
                best = drafted
    return best


def _decide(drafted: Drafted, kind: str, ordinary: Drafted | None, tryer: Tryer) -> Drafted | None:
    """Return what is reported if a draft, or one with labels in it, is right or wrong; `None` otherwise."""
    held = _hold(drafted, tryer)
    if held is not None or not _is_decided(drafted):
        return held
    # A mismatch for values that were only tried because the likeliest left something open.
    is_odd = drafted.is_mismatched and kind in KINDS
    return _ask(drafted, ordinary) if is_odd and ordinary is not None else drafted


def _hold(drafted: Drafted, tryer: Tryer) -> Drafted | None:
    """Return a draft that doesn't differentiate by the inputs whose gradient is `None`; `None` if none helps.

    They are mostly labels and masks, and a right gradient may be wrong for any but 0 and 1. Whether the
    `None` is meant is asked. If other gradients are wrong even so, it is the draft that shows that.
    """
    wrong: Drafted | None = None
    for tried in _list_held(drafted) if drafted.without_gradient else ():
        held = _try(tried, tryer)
        if held.is_right:
            return _ask(wrong or drafted, held)
        if wrong is None and held.is_mismatched and _is_decided(held):
            wrong = held
    return wrong


def _list_held(drafted: Drafted) -> Iterator[Draft]:
    """Yield drafts whose inputs without a gradient are 0 or 1, drawn or one-hot, or as they are."""
    names = drafted.without_gradient
    are_labels = any(kind_of(name, names) == "probabilities" for name in names)
    changes = (_as_one_hot, _as_mask) if are_labels else (_as_mask, _as_one_hot)
    for change in (*changes, dict):
        yield drafted.draft.with_says(
            partial(_hold_as, change=change),
            only=lambda made: made.name in names and isinstance(made.says, dict),
        )


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
    lines = [line for text in drafted.explain() for line in textwrap.wrap(text, _WIDTH)]
    return replace(drafted, draft=replace(drafted.draft, notes=(*lines, *drafted.draft.notes)))


def _is_decided(drafted: Drafted) -> bool:
    """Whether other values won't show more: everything is right, or some number is clearly wrong.

    Gradients that are infinite or `None` may be so only outside a domain; and if one triangle of a matrix is
    read, symmetric values may help. Of a gradient's form, other shapes may show more.
    """
    result = drafted.result
    if result is None:
        return False
    wrong = [pair for pair in result.pairs if pair.mismatch == "value"]
    one_triangle = any("symmetric: true" in text for pair in wrong for text in pair.cause.diagnosis)
    if drafted.is_of_wrong_form:
        return drafted.lacks_sum
    return result.status is Status.PASSED or (bool(wrong) and not one_triangle)


def _try(draft: Draft, tryer: Tryer) -> Drafted:
    """Run a draft, with its outputs named; without what its first run says that it hasn't."""
    if not tryer.may_try(draft.text()):
        return Drafted(draft, None, "it ends the process on some of the inputs that were tried")
    try:
        (case,) = load_mapping(draft.mapping())
    except GradcheckError as error:  # no valid spec
        return Drafted(draft, None, str(error))
    result = run_case(case)
    message = "" if result.error is None else result.error.message
    setting = _NOT_A_SETTING.search(message)
    if _NO_VARIABLES in message and "variables" in draft.keys:
        keys = {name: value for name, value in draft.keys.items() if name != "variables"}
        return _try(replace(draft, keys=keys), tryer)
    if setting is not None and setting[1] in draft.keys.get("attrs", {}):
        return _try(draft.with_input(setting[1]), tryer)
    return Drafted(_with_outputs(draft, result), result)


def _with_outputs(draft: Draft, result: CaseResult | None) -> Draft:
    """Return the draft with its outputs named, if there are several: those that have gradients."""
    names = list(dict.fromkeys(pair.output for pair in result.pairs)) if result is not None else []
    plain = all(name.isidentifier() for name in names)
    whole = result is not None and not result.how.not_differentiated
    if len(names) <= 1 or "outputs" in draft.keys or not plain or not whole:
        return draft
    remarks = {**draft.remarks, "outputs": "what forward returns, in order: choose names"}
    return replace(draft, keys={**draft.keys, "outputs": names}, remarks=remarks)
