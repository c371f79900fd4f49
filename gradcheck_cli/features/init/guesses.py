"""What a draft tries for its inputs: by their names first, then one kind of value after another."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

# Shapes for tensors that are differentiated, the likeliest first; an `axis` has rank 2 and unequal sizes.
SHAPES: tuple[list[int], ...] = (
    [3],
    [2, 3],
    [],
    [3, 3],
    [2, 3, 2],
    [1, 4, 4, 2],
    [2, 2, 2, 2],
    [1, 3, 3, 3, 1],
    [8],
    [2, 3, 3],
    [2, 4],  # quaternions, boxes
    [4],
)
# Inputs that select or count, one for each of the shapes above. Several, unequal and one of them twice, where
# that is possible: a single index tests no gradient that adds up.
INTEGERS: tuple[Any, ...] = (
    [1, 1, 2],
    [1, 2],
    0,
    [1, 1, 2],
    [1, 1],
    [2, 3],
    [[1], [2], [2]],
    [[0, 1], [1, 1]],
    [[0, 0]],
    [0],
    [0, 1],
    [1, 0, 1, 2],
)

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


_TAKES_INDICES = frozenset(
    ("gather", "gather_nd", "one_hot", "sequence_mask", "unsorted_segment_sum", "segment_sum", "bincount")
)


def takes_indices(called: Collection[str]) -> bool:
    """Whether code calls a function of whole numbers, given the names of called functions."""
    return not _TAKES_INDICES.isdisjoint(called)


def kinds_for(called: Collection[str]) -> list[str]:
    """Return the kinds of values in the order to try them, given the names of called functions."""
    first = dict.fromkeys(_CALLED[name] for name in sorted(called) if name in _CALLED)
    return list(dict.fromkeys([*first, *KINDS]))


def is_setting(name: str, others: Collection[str]) -> bool:
    """Whether an argument is a setting by its name; beside a query and a value, k is a key."""
    return name in SETTINGS and not (name == "k" and {"q", "v"} & set(others))


def fits(kind: str, shape: list[int]) -> bool:
    """Whether a kind of value can have a shape."""
    return kind != "positive definite" or (len(shape) > 1 and shape[-1] == shape[-2])
