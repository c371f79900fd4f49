"""Draft a spec: describe the function, then find shapes by trying which of them it can be opened with."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.running.session import list_pairs, start_tensorflow
from gradcheck_cli.spec.load import load_mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradcheck_cli.results import CaseResult
    from gradcheck_cli.spec.draft import Draft, DraftInput

# What is tried for tensors that gradients are taken of, the likeliest first, and for those that select.
_SHAPES: tuple[list[int], ...] = (
    [3],
    [2, 3],
    [],
    [3, 3],
    [2, 3, 2],
    [1, 4, 4, 2],
    [2, 2, 2, 2],
    [1, 3, 3, 3, 1],
)
_INTEGERS: tuple[Any, ...] = (0, [0], [0, 1], [1, 1], [2, 3], [[0, 0]])
_MOST = 400  # tries; each takes a trace


class Drafted:
    """A draft, and what came of opening it: whether it runs as it stands."""

    def __init__(self, draft: Draft, found: CaseResult | None) -> None:
        """Keep both; `found` is what opening it came to."""
        self.draft, self.found = draft, found

    @property
    def runs(self) -> bool:
        """Whether it can be opened, and has pairs."""
        return self.found is not None and self.found.error is None and bool(self.found.pairs)

    @property
    def trouble(self) -> str:
        """Say why it can't be opened."""
        error = self.found.error if self.found is not None else None
        return f"{error.kind}: {error.message}" if error is not None else ""


def draft_function(target: str) -> Drafted:
    """Draft the spec of a function, layer or module.

    Args:
        target: `module:attribute`, importable from the working directory.

    Raises:
        CaseFailedError: it can't be imported, or isn't callable.
    """
    start_tensorflow()
    from gradcheck_cli.tensorflow_backend.describing import describe  # noqa: PLC0415 (late: TensorFlow)
    from gradcheck_cli.tensorflow_backend.loading import importable  # noqa: PLC0415
    from gradcheck_cli.tensorflow_backend.startup import settings  # noqa: PLC0415

    with settings(), importable(str(Path.cwd())):
        return _with_shapes(describe(target))


def draft_op_type(op_type: str) -> Drafted:
    """Draft the spec of an op type.

    Raises:
        CaseFailedError: there is no such op type.
    """
    start_tensorflow()
    from gradcheck_cli.tensorflow_backend.describing_ops import describe_op_type  # noqa: PLC0415 (late)

    return _with_shapes(describe_op_type(op_type))


def _with_shapes(draft: Draft) -> Drafted:
    """Return the first of what can be tried that can be opened; the first of all, where none can."""
    first: Drafted | None = None
    tries = itertools.islice(_tries(draft.inputs), _MOST)
    for dtype, inputs in itertools.product((None, "float32"), [*tries]):
        tried = replace(draft, inputs=inputs)
        if dtype is not None:
            tried = _in_dtype(tried, dtype)
        drafted = Drafted(tried, _opened(tried))
        if drafted.runs:
            return Drafted(_with_outputs(tried, drafted.found), drafted.found)
        first = first or drafted
        error = None if drafted.found is None else drafted.found.error
        if error is not None and error.kind in {"import", "attribute"}:
            break  # no shape will mend that
    return first or Drafted(draft, None)


def _tries(inputs: Sequence[DraftInput]) -> Iterator[tuple[DraftInput, ...]]:
    """Yield inputs with every guess filled in: first all of one shape, then each of its own."""
    choices = [_choices(one) for one in inputs]
    seen = []
    most = max(map(len, choices), default=0)
    together = [tuple(own[min(place, len(own) - 1)] for own in choices) for place in range(most)]
    for inputs_tried in itertools.chain(together, itertools.product(*choices)):
        says = [one.says for one in inputs_tried]
        if says not in seen:
            seen.append(says)
            yield tuple(inputs_tried)


def _choices(one: DraftInput) -> list[DraftInput]:
    if isinstance(one.says, list):  # a list input: its elements alike
        return [replace(one, says=[{"shape": shape, **part} for part in one.says]) for shape in _SHAPES]
    says = one.says or {}
    if "shape" in says or "value" in says:
        return [one]
    if says.get("dtype", "float64").startswith(("int", "uint")):
        return [replace(one, says={"value": value, **says}, is_guess=True) for value in _INTEGERS]
    return [replace(one, says={"shape": shape, **says}, is_guess=True) for shape in _SHAPES]


def _in_dtype(draft: Draft, dtype: str) -> Draft:
    """Return the draft with a dtype for each input that names none: a forward may take no float64."""

    def typed(says: Any) -> Any:  # noqa: ANN401 (YAML)
        if isinstance(says, list):
            return [typed(part) for part in says]
        return says if "dtype" in says else {**says, "dtype": dtype}

    return replace(draft, inputs=tuple(replace(one, says=typed(one.says)) for one in draft.inputs))


def _opened(draft: Draft) -> CaseResult | None:
    try:
        (case,) = load_mapping(draft.mapping())
    except GradcheckError:
        return None
    return list_pairs(case)


def _with_outputs(draft: Draft, found: CaseResult | None) -> Draft:
    """Return the draft with its outputs named, where there are several: those that have gradients."""
    names = list(dict.fromkeys(pair.output for pair in found.pairs)) if found is not None else []
    plain = all(name.isidentifier() for name in names)
    whole = found is not None and not found.not_differentiated
    if len(names) < 2 or "outputs" in draft.keys or not plain or not whole:  # noqa: PLR2004 (several)
        return draft
    return draft.with_key("outputs", names, "what forward returns, in order: put in your names")
