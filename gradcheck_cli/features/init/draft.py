"""A draft of a spec, as text with comments on what was guessed, and the guesses to try for its inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gradcheck_cli.spec.yaml_tree import as_flow

_GUESS = "  # values that it accepts: replace them with yours"
_RIGHT = "  # values for which its gradient isn't wrong"
_QUESTION = """\
# Is it meant for the inputs of this case, too? With them its gradient differs from the derivative. If they
# are outside of its domain, delete the case. If not, delete 'pairs': a run then shows what is wrong."""
_BROADCAST = "  # broadcast, so that its gradient needs a sum"


@dataclass(frozen=True)
class DraftInput:
    """One input: what the spec will say about it."""

    name: str
    says: Any
    is_guess: bool = False  # whether its shape is a guess that may be changed
    # whether its shape lacks an axis of the others', so that a gradient needs a sum
    is_broadcast: bool = False

    @property
    def is_shaped(self) -> bool:
        """Whether it is a tensor with a shape that may be changed."""
        return self.is_guess and isinstance(self.says, dict) and "shape" in self.says

    @property
    def parts(self) -> dict[str, DraftInput]:
        """The tensors of a structure, by name; those of a list are alike, and count as one."""
        for key in ("fields", "dict"):
            if isinstance(self.says, dict) and key in self.says:
                return {name: replace(self, name=name, says=says) for name, says in self.says[key].items()}
        return {}

    def with_parts(self, parts: Iterable[DraftInput]) -> DraftInput:
        """Return the structure with other tensors."""
        key = "fields" if "fields" in self.says else "dict"
        return replace(self, says={**self.says, key: {part.name: part.says for part in parts}}, is_guess=True)


@dataclass(frozen=True)
class Draft:
    """A spec before it is written."""

    op: str
    keys: Mapping[str, Any]  # its content, by key, in order, except `inputs`
    inputs: tuple[DraftInput, ...]  # in forward's order
    remarks: Mapping[str, str] = field(default_factory=dict)  # comments, by key
    notes: tuple[str, ...] = ()  # lines for the end, such as keys that may be of use
    # names of the functions that the code calls, which hint at the values that it takes
    called: frozenset[str] = frozenset()
    asked: Mapping[str, Any] = field(default_factory=dict)  # a case with inputs for which it is wrong

    def mapping(self) -> dict[str, Any]:
        """Return the spec as a mapping, for `load_mapping`."""
        return {
            "op": self.op,
            **self.keys,
            "inputs": {draft_input.name: draft_input.says for draft_input in self.inputs},
            **({"cases": [self.asked]} if self.asked else {}),
        }

    def with_says(
        self, change: Callable[[Any], Any], only: Callable[[DraftInput], bool] = lambda _: True
    ) -> Draft:
        """Return the draft with what it says about its inputs, or about some of them, changed."""
        inputs = (replace(made, says=change(made.says)) if only(made) else made for made in self.inputs)
        return replace(self, inputs=tuple(inputs))

    def tensors(self) -> list[Mapping[str, Any]]:
        """Return what the spec says about each tensor; those of a list are alike, and count as one."""
        inputs = [part for made in self.inputs for part in (made.parts.values() or [made])]
        return [says[0] if isinstance(says := made.says, list) else says or {} for made in inputs]

    def text(self) -> str:
        """Return the YAML, with comments beside guesses."""
        lines = [f"op: {as_flow(self.op)}"]
        for key, value in self.keys.items():
            remark = self.remarks.get(key, "")
            lines.append(f"{key}: {as_flow(value)}" + (f"  # {remark}" if remark else ""))
        lines.append("inputs:" if self.inputs else "inputs: {}")
        for draft_input in self.inputs:
            guess = _RIGHT if self.asked else _GUESS
            remark = _BROADCAST if draft_input.is_broadcast else guess if draft_input.is_guess else ""
            lines.append(f"  {as_flow(draft_input.name)}: {as_flow(draft_input.says)}{remark}")
        if self.asked:
            keys = [f"{key}: {as_flow(value)}" for key, value in self.asked.items()]
            lines += [_QUESTION, "cases:", f"- {keys[0]}", *(f"  {key}" for key in keys[1:])]
        lines += [f"# {note}" for note in self.notes]
        return "\n".join(lines) + "\n"


# Guesses.

MOST_TRIES = 250  # each takes a trace

# Shapes for tensors that are differentiated, the likeliest first; an `axis` has rank 2 and unequal sizes.
# Beside each, an input that selects or counts: several numbers, unequal and one of them twice, where that is
# possible, since a single index tests no gradient that adds up.
_INTEGERS: dict[tuple[int, ...], Any] = {
    (3,): [1, 1, 2],
    (2, 3): [1, 2],
    (): 0,
    (3, 3): [1, 1, 2],
    (2, 3, 2): [1, 1],
    (1, 4, 4, 2): [2, 3],
    (2, 2, 2, 2): [[1], [2], [2]],
    (1, 3, 3, 3, 1): [[0, 1], [1, 1]],
    (8,): [[0, 0]],
    (2, 3, 3): [0],
    (2, 4): [0, 1],  # quaternions, boxes
    (4,): [1, 0, 1, 2],
}
_SHAPES = [list(shape) for shape in _INTEGERS]

Guess = dict[str, Any]

_WORDS: dict[str, tuple[str, ...]] = {
    "probabilities": ("probs", "probabilities", "labels", "prob", "targets"),
    "integers": ("indices", "ids", "index", "lengths", "length", "idx", "classes", "counts", "positions"),
    "mask": ("mask", "masks", "condition", "where", "is"),
    "row": ("bias", "biases", "beta", "gamma", "offset", "shift"),
    "positive": (
        "scale",
        "std",
        "stddev",
        "sigma",
        "variance",
        "var",
        "rate",
        "temperature",
        "concentration",
    ),
    "spectrum": ("spectrum", "spectra", "stfts", "fft"),
}

# Arguments without a default that aren't tensors, and their possible values.
SETTINGS: dict[str, Any] = {
    "axis": 1,
    "dim": 1,
    "dims": [1],
    "axes": [1],
    "num_segments": 3,
    "k": 1,
    "depth": 3,
    "block_size": 2,
    "frame_length": 2,
    "frame_step": 1,
    "fft_length": [4],
    "multiples": [1, 2],
    "paddings": [[1, 1], [0, 1]],
    "repeats": 2,
    "shift": 1,
    "num_classes": 3,
    "num_or_size_splits": 1,
    "n": 2,
    "ksize": 2,
    "window_shape": [2],
    "pooling_type": "MAX",
    "equation": "ab,bc->ac",
    "subscripts": "ab,bc->ac",
    "strides": 1,
    "padding": "SAME",
    "depth_radius": 2,
}

# The same for what a factory or a layer takes.
MADE_WITH: dict[str, Any] = {**SETTINGS, "units": 2, "filters": 2, "kernel_size": 2, "pool_size": 2}


# Short names that mean something only together with others: q with a p, b with an x.
_BESIDE = {
    "p": ("q", "probabilities"),
    "q": ("p", "probabilities"),
    **{f"b {other}": (other, "row") for other in ("x", "w", "weights", "kernel", "inputs")},
}


def kind_of(name: str, others: Collection[str] = ()) -> str:
    """Return the kind of value that an input's name suggests, given the other names; empty for none."""
    words = name.lower().strip("_").split("_")
    for kind, hints in _WORDS.items():
        if words[-1] in hints or (kind == "mask" and words[0] in hints):
            return kind
    beside = (kind for own, (other, kind) in _BESIDE.items() if own.split()[0] == name and other in others)
    return next(beside, "")


# Kinds of values in order, each for every input that has a shape and no dtype yet.
KINDS: dict[str, Callable[[list[int]], Guess]] = {
    "": lambda shape: {"shape": shape},
    "positive": lambda shape: {"shape": shape, "uniform": {"low": 0.5, "high": 2}},
    "between -1 and 1": lambda shape: {"shape": shape, "uniform": {"low": -0.9, "high": 0.9}},
    "between 0 and 1": lambda shape: {"shape": shape, "uniform": {"low": 0.1, "high": 0.9}},
    "positive definite": lambda shape: {"shape": shape, "spd": True, "symmetric": True},
    "probabilities": lambda shape: {"shape": shape or [3], "probabilities": True},
    "above 1": lambda shape: {"shape": shape, "uniform": {"low": 1.5, "high": 3}},
    "apart": lambda shape: {"shape": shape, "min_gap": 0.1, "away_from": [0]},
    "complex": lambda shape: {"shape": shape, "dtype": "complex128"},
    "float32": lambda shape: {"shape": shape, "dtype": "float32"},
    "complex64": lambda shape: {"shape": shape, "dtype": "complex64"},
}


# What is guessed for a shape, by the kind of value that an input's name suggests.
BY_NAME: dict[str, Callable[[list[int]], Guess]] = {
    "probabilities": KINDS["probabilities"],
    "mask": lambda shape: {"shape": shape, "dtype": "bool"},
    # A bias with its partner's own shape would test no broadcasting.
    "row": lambda shape: {"shape": shape[-1:]},
    "positive": KINDS["positive"],
    "spectrum": KINDS["complex"],
}

# Code that calls one of these functions takes values of this kind.
_CALLED = {
    **dict.fromkeys(("cholesky", "cholesky_solve", "self_adjoint_eig", "eigh"), "positive definite"),
    **dict.fromkeys(("conj", "imag", "angle"), "complex"),
}


# Code that calls one of these takes whole numbers.
_TAKES_INDICES = frozenset(
    ("gather", "gather_nd", "one_hot", "sequence_mask", "unsorted_segment_sum", "segment_sum", "bincount")
)


def is_setting(name: str, others: Collection[str]) -> bool:
    """Whether an argument is a setting by its name; beside a query and a value, k is a key."""
    return name in SETTINGS and not (name == "k" and {"q", "v"} & set(others))


def fits(kind: str, shape: list[int]) -> bool:
    """Whether a kind of value can have a shape."""
    return kind != "positive definite" or (len(shape) > 1 and shape[-1] == shape[-2])


def list_tries(draft: Draft) -> Iterator[tuple[str, Draft]]:
    """Yield (kind of values, draft), every guess filled in: all inputs of one shape, then each of its own."""
    tensors = [part for made in draft.inputs for part in (made.parts.values() or [made])]
    names = [tensor.name for tensor in tensors]
    shapes = _SHAPES
    # Matrices first: a layer's first axis is the batch's, and a right layer may be wrong for a vector.
    if "variables" in draft.keys or _takes_an_axis(draft):
        shapes = sorted(shapes, key=lambda shape: len(shape) <= 1)
    hinted = dict.fromkeys(_CALLED[name] for name in sorted(draft.called) if name in _CALLED)
    kinds = list(dict.fromkeys([*hinted, *KINDS]))
    # Floats, of whole values, for inputs that are counts or indices by their names.
    counts = [
        replace(tensor, says={"dtype": "float64"})
        if tensor.says is None and kind_of(tensor.name) == "integers"
        else tensor
        for tensor in tensors
    ]
    alike, mixed = _alike(tensors, kinds, shapes, names), _mixed(tensors, shapes, names)
    integers, mixed_integers = _with_integers(tensors, names), _mixed_with_integers(tensors, names)
    rest = [alike, integers, mixed, mixed_integers]
    if not _TAKES_INDICES.isdisjoint(draft.called):
        rest = [integers, mixed_integers, alike, mixed]
    tries = [_alike(tensors, kinds[:1], shapes, names), _alike(counts, kinds[:1], shapes, names), *rest]
    seen = set()
    for kind, chosen in itertools.chain.from_iterable(tries):
        key = repr([tensor.says for tensor in chosen])
        if key not in seen:
            seen.add(key)
            left = iter(chosen)
            inputs = (
                made.with_parts(itertools.islice(left, len(made.parts))) if made.parts else next(left)
                for made in draft.inputs
            )
            yield kind, replace(draft, inputs=tuple(inputs))


def _takes_an_axis(draft: Draft) -> bool:
    names = {*draft.mapping().get("attrs", {}), *(made.name for made in draft.inputs)}
    return bool(names & {"axis", "dim", "dims", "axes"}) or any(
        kind_of(made.name, names) in {"row", "probabilities"} for made in draft.inputs
    )


_Tries = Iterator[tuple[str, list[DraftInput]]]  # a kind of values, and each tensor with a guess


def _alike(
    tensors: Sequence[DraftInput], kinds: Sequence[str], shapes: Sequence[list[int]], names: Collection[str]
) -> _Tries:
    """Yield tensors of one shape; and a tensor with scalars beside it: its settings, as a mean, a width."""
    for kind in kinds:
        for shape in shapes:
            if fits(kind, shape):
                yield kind, [_guess(tensor, kind, shape, names) for tensor in tensors]
        for shape in shapes[:2] if not kind and len(tensors) > 1 else ():
            scalars = [_guess(tensor, kind, [], names) for tensor in tensors[1:]]
            yield "scalars", [_guess(tensors[0], kind, shape, names), *scalars]


def _mixed(tensors: Sequence[DraftInput], shapes: Sequence[list[int]], names: Collection[str]) -> _Tries:
    """Yield tensors that differ in shape."""
    for kind in ("", "float32"):
        for each in itertools.islice(itertools.product(shapes, repeat=len(tensors)), MOST_TRIES // 3):
            yield (
                "mixed",
                [_guess(tensor, kind, shape, names) for tensor, shape in zip(tensors, each, strict=True)],
            )


def _with_integers(tensors: Sequence[DraftInput], names: Collection[str]) -> _Tries:
    """Yield tensors of which one or two of unknown dtype are whole numbers."""
    unknown = [tensor for tensor in tensors if tensor.says is None]
    subsets = [*itertools.combinations(unknown, 1), *itertools.combinations(unknown, 2)]
    shapes, values = _SHAPES[:4], list(_INTEGERS.values())[:6]
    for chosen in reversed(subsets):
        for shape, value in (*zip(shapes, values, strict=False), *itertools.product(shapes, values)):
            if len(chosen) < len(tensors):
                yield (
                    "integers",
                    [
                        _whole(tensor, value) if tensor in chosen else _guess(tensor, "", shape, names)
                        for tensor in tensors
                    ],
                )


def _mixed_with_integers(tensors: Sequence[DraftInput], names: Collection[str]) -> _Tries:
    """Yield tensors of which one is whole numbers and the others differ: logits, classes, weights."""
    shapes: tuple[list[int], ...] = ([2, 3], [3], [])
    for chosen in tensors if len(tensors) > 2 else ():  # noqa: PLR2004 (two are tried in all shapes by now)
        for each in itertools.product(shapes, repeat=len(tensors) - 1) if chosen.says is None else ():
            left = iter(each)
            yield (
                "mixed integers",
                [
                    _whole(tensor, [1, 2]) if tensor is chosen else _guess(tensor, "", next(left), names)
                    for tensor in tensors
                ],
            )


def _whole(tensor: DraftInput, value: Any) -> DraftInput:
    return replace(tensor, says={"value": value, "dtype": "int32"}, is_guess=True)


def _guess(tensor: DraftInput, kind: str, shape: list[int], names: Collection[str]) -> DraftInput:
    """Return a tensor, or a list of them, with a guess for what isn't known about it."""
    made = KINDS[kind](shape)
    if isinstance(tensor.says, list):  # its elements are alike
        return replace(tensor, says=[{**made, **element} for element in tensor.says], is_guess=True)
    says = tensor.says or {}
    if says.keys() & {"shape", "value", "object"}:
        return tensor
    if says.get("dtype", "").startswith(("int", "uint")) or kind_of(tensor.name, names) == "integers":
        made = {"dtype": "int32", **says, "value": _INTEGERS[tuple(shape)]}
    elif "dtype" in says:
        made = {**made, **says}
    elif kind in {"", "float32"}:
        made = BY_NAME.get(kind_of(tensor.name, names), KINDS[kind])(shape)
        made = {**made, "dtype": made.get("dtype", kind)} if kind else made
    return replace(tensor, says=made, is_guess=True)
