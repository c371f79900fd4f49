"""Drafts a spec: describes the function, finds inputs that it takes, runs it, and mends what fails."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradcheck_cli import clock
from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.features.init.candidates import TABLES, kind_of, with_kind
from gradcheck_cli.features.init.draft import DEADLY, Draft
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
_OF_SHAPE = "must have shape"
_NO_VARIABLES = "uses no trainable variable"
_NOT_A_SETTING = re.compile(r"the gradient for the setting (\w+) must be None or zero")


@dataclass(frozen=True)
class Drafted:
    """A draft, and the result of running it as it is."""

    draft: Draft
    result: CaseResult | None = None  # the result of running it, or of opening it if it can't be run
    # why it wasn't run, if there is no result; else whether inputs with which it is wrong are meant
    told: str = ""

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

    def _is(self, status: Status) -> bool:
        return self.result is not None and self.result.status is status and not self.told

    @property
    def is_right(self) -> bool:
        """Whether a run of it ends with 0: something was tested, and nothing is wrong or undecided."""
        return self._is(Status.PASSED)

    @property
    def is_mismatched(self) -> bool:
        """Whether running it finds a wrong gradient: then the spec is as it should be."""
        return self._is(Status.MISMATCHED)

    @property
    def passed(self) -> int:
        """How many pairs pass."""
        return sum(pair.status is Status.PASSED for pair in self.pairs)

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
    def is_of_wrong_dtype(self) -> bool:
        """Whether a gradient has another dtype than its input."""
        return any(pair.mismatch == "form" and _OF_SHAPE not in pair.message for pair in self.pairs)

    @property
    def is_wrong(self) -> bool:
        """Whether a gradient is clearly wrong for these inputs.

        One that is infinite may be so only outside a domain; if one triangle of a matrix is read, symmetric
        values may help; and one of a wrong shape may be meant for other shapes alone.
        """
        wrong = [pair for pair in self.pairs if pair.mismatch == "value"]
        one_triangle = any("symmetric: true" in text for pair in wrong for text in pair.cause.diagnosis)
        is_of_wrong_value = bool(wrong) and not one_triangle
        is_of_wrong_form = self.lacks_sum or self.is_of_wrong_dtype
        return self.runs and (is_of_wrong_value or is_of_wrong_form or bool(self.without_gradient))

    def explain(self) -> list[str]:
        """Say why running it doesn't end with 0, and what to do if it doesn't run."""
        begin = "The first run finds:" if self.runs else "This draft doesn't run yet:"
        if self.runs and self.told:
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
        if self.told or self.result is None:
            return self.told
        if self.error.kind:
            return f"{self.error.kind}: {self.error.message}"
        troubles = [
            f"{pair.label} is {pair.status}: "
            + (pair.message or "; ".join(pair.cause.diagnosis) or pair.note or "see gradcheck run")
            for pair in self.pairs
            if pair.status not in GREEN
        ]
        troubles += [
            f"check {check.name} is {check.status}: {check.message}"
            for check in self.result.checks
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
    from gradcheck_cli.features.init.describe_function import describe
    from gradcheck_cli.features.init.describe_op_type import describe_op_type
    from gradcheck_cli.features.init.tryer import Tryer
    from gradcheck_cli.tensorflow_backend.startup import settings
    from gradcheck_cli.tensorflow_backend.users_code import importable

    with settings(), importable(str(Path.cwd())):
        if ":" not in target:
            drafts, why_not = describe_op_type(target)
            drafted = Drafted(drafts[0], told=why_not)
            if not why_not:
                drafted = _run_first_right(drafts, Tryer(may_try))
        else:
            drafted = _run_first_right([describe(target)], Tryer(may_try))
            if _IS_NUMPY in drafted.told:
                drafted = _run_first_right([describe(target, is_numpy=True)], Tryer(may_try))
        if drafted.is_right or drafted.is_mismatched or (drafted.runs and drafted.told):
            return drafted
        # Written into the draft, unless the gradient is wrong: there it would stand when that is mended.
        lines = [line for text in drafted.explain() for line in textwrap.wrap(text, _WIDTH)]
        return replace(drafted, draft=replace(drafted.draft, runs=drafted.runs).with_note(*lines))


def _run_first_right(described: list[Draft], tryer: Tryer) -> Drafted:
    """Run drafts, and those that follow from what is wrong with them, until one is right.

    Inputs that a guess took may lie outside of what a function is meant for. So if others are right, the
    draft asks about those: a run tests the right ones, skips the others, and doesn't exit with 0 before the
    question is answered. Other shapes have the same ranks: a function of vectors isn't wrong since it is
    wrong for matrices. Where numbers leave it open, one kind of them after another is tried, and then other
    shapes.

    Returns:
        The right draft; else the wrong one; else the one that came closest to that.
    """
    best: Drafted | None = None  # of those that aren't wrong
    wrong: Drafted | None = None
    varied, end = 0, clock.now() + _MOST_SECONDS
    for taken in itertools.islice(tryer.try_all(described), _MOST_DRAFTS):
        if wrong is not None and (varied > _MOST_VARIED or _ranks(taken) != _ranks(wrong.draft)):
            continue
        varied += 1
        kinds = TABLES["tried"] if varied <= _MOST_VARIED else [""]
        waiting, seen = [(kind, _with_kind(taken, kind)) for kind in kinds], list[Draft]()
        while waiting:
            kind, tried = waiting.pop(0)
            # A wrong gradient isn't right since it is within the tolerance of a coarser dtype.
            if tried in seen or (wrong is not None and kind in TABLES["not_if_wrong"]):
                continue
            if clock.now() > end and wrong is not None:
                return wrong
            if clock.now() > end and best is not None:
                note = f"not tried, for lack of time ({_MOST_SECONDS} s): more values and shapes"
                return replace(best, draft=best.draft.with_note(note))
            seen.append(tried)
            drafted = _run(tried, tryer)
            if drafted.is_right:
                return _broadcast(drafted, tryer) if wrong is None else _ask(wrong, drafted)
            if drafted.is_wrong:
                wrong = drafted if wrong is None or wrong.without_gradient else wrong
                waiting = [*(("", follower) for follower in _list_followers(drafted)), *waiting]
            elif best is None or (drafted.runs, drafted.passed) > (best.runs, best.passed):
                best = drafted
    return wrong or best or Drafted(tryer.first or described[0], told=tryer.why_not)


def _with_kind(draft: Draft, kind: str) -> Draft:
    """Return the draft with numbers of a kind; a layer that is drafted in float64 has their dtype."""
    made = draft.with_says(partial(with_kind, kind=kind))
    if kind == "float32" and "dtype" in draft.keys.get("build", {}):
        return replace(made, keys={**draft.keys, "build": {**draft.keys["build"], "dtype": kind}})
    return made


def _list_followers(wrong: Drafted) -> list[Draft]:
    """Return drafts of which the form of a wrong gradient says that it may be right for them.

    Inputs without a gradient are mostly labels and masks, and a right gradient may be wrong for any but 0 and
    1. They are these, drawn or one-hot, or as they are, and not differentiated.
    """
    draft, held = wrong.draft, wrong.without_gradient
    if held:
        are_labels = any(kind_of(name) == "probabilities" for name in held)
        changes = (_as_one_hot, _as_mask) if are_labels else (_as_mask, _as_one_hot)
        return [
            draft.with_says(
                partial(_held, change=change),
                only=lambda made: made.name in held and isinstance(made.says, dict),
            )
            for change in (*changes, dict)
        ]
    shapes = draft.shapes()
    if wrong.lacks_sum and [] not in shapes:
        largest = max(filter(None, shapes), key=len)
        return [draft.with_says(lambda says: {**says, "shape": largest}, only=lambda made: made.is_shaped)]
    return [_with_kind(draft, "float32")] if wrong.is_of_wrong_dtype else []


def _held(says: Mapping[str, Any], change: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
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
        tried = _run(replace(right.draft, inputs=tuple(changed)), tryer)
        if tried.is_right or tried.is_wrong:
            return tried if tried.is_right else _ask(tried, right)
    return right


def _ranks(draft: Draft) -> list[int]:
    return [len(shape or ()) for shape in draft.shapes()]


def _ask(wrong: Drafted, right: Drafted) -> Drafted:
    """Return the right draft with the question whether the inputs of the wrong one are meant, too."""
    both = zip(wrong.draft.inputs, right.draft.inputs, strict=True)
    differing = [(wide, own.says) for wide, own in both if wide.says != own.says]
    names = ", ".join(f"{wide.name}: {as_flow(wide.says)}" for wide, _ in differing)
    asked = {
        "name": "other_inputs",
        "inputs": {wide.name: _over(wide.says, below) for wide, below in differing},
        "pairs": _SKIPPED,  # a run says why
    }
    question = f"is it meant for {names}, too? There {wrong.trouble.splitlines()[0]}"
    return replace(right, draft=replace(right.draft, asked=asked), told=question)


def _over(says: Any, below: Any) -> Any:
    """Return an input as a case must write it, to replace what the op says about it."""
    if not isinstance(says, dict) or not isinstance(below, dict):
        return says
    dropped = set(below) - set(says)
    is_bare = dropped & GENERATORS.keys() and not GENERATORS.keys() & says
    drawn = {"normal": {"mean": 0, "stddev": 1}} if is_bare else {}
    others = {"symmetric": False, "differentiate": True, "dtype": "float64"}  # what an input is by default
    return {**says, **drawn, **{key: value for key, value in others.items() if key in dropped}}


def _run(draft: Draft, tryer: Tryer) -> Drafted:
    """Run a draft, with its outputs named; without what its first run says that it hasn't."""
    if not tryer.may_try(draft.text()):
        return Drafted(draft, told=DEADLY)
    try:
        (case,) = load_mapping(draft.mapping())
    except GradcheckError as error:  # no valid spec
        return Drafted(draft, told=str(error))
    result = run_case(case)
    message = "" if result.error is None else result.error.message
    setting = _NOT_A_SETTING.search(message)
    if _NO_VARIABLES in message and "variables" in draft.keys:
        keys = {name: value for name, value in draft.keys.items() if name != "variables"}
        return _run(replace(draft, keys=keys), tryer)
    if setting is not None and setting[1] in draft.keys.get("attrs", {}):
        return _run(draft.with_input(setting[1]), tryer)
    return Drafted(_with_outputs(draft, result), result)


def _with_outputs(draft: Draft, result: CaseResult) -> Draft:
    """Return the draft with its outputs named, if there are several: those that have gradients."""
    names = list(dict.fromkeys(pair.output for pair in result.pairs))
    is_plain = all(name.isidentifier() for name in names)
    if len(names) <= 1 or "outputs" in draft.keys or not is_plain or result.how.not_differentiated:
        return draft
    remarks = {**draft.remarks, "outputs": "what forward returns, in order: choose names"}
    return replace(draft, keys={**draft.keys, "outputs": names}, remarks=remarks)
