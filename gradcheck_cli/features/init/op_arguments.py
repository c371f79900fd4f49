"""The values that an op type's arguments may have, by the names in TensorFlow's op definitions.

The names are few: `segment_ids`, `axis`, `strides`, `a_indices` with `a_values` and `a_shape` mean the same
in every op type. TensorFlow's shape functions and kernels say which of the values fit an op type.
"""

from __future__ import annotations

import re
from typing import Any

# Shapes by rank, the likeliest first. Those of one rank fit those of the next: images and filters, matrices
# and vectors.
SHAPES: tuple[tuple[list[int], ...], ...] = (
    ([],),
    ([3], [2], [8], [4], [6], [5]),
    ([2, 3], [3, 3], [3, 2], [2, 2], [1, 3], [2, 4], [1, 8], [4, 8]),
    ([2, 3, 2], [2, 3, 3], [2, 2, 2], [2, 2, 3], [1, 2, 3], [2, 2, 1], [1, 3, 3]),
    ([1, 4, 4, 2], [2, 2, 2, 2], [2, 4, 4, 1], [1, 2, 2, 2], [4, 2, 2, 1], [1, 8, 2, 2], [1, 4, 4, 4]),
    ([1, 3, 3, 3, 1], [2, 2, 2, 1, 1], [1, 4, 4, 4, 1], [1, 3, 3, 2, 2]),
)

_SIZES = ([2, 3], [3, 2], [2, 2], [3], [2], [1, 4, 4, 2], [2, 2, 2, 2], [1, 3, 3, 3, 1], [2, 2, 2, 1, 1])
# Two of a 2 x 3 grid's elements, as COO indices.
_COORDINATES = [[0, 0], [1, 2]]

# Whole numbers, by a pattern for the whole name; the first matching row counts.
_INTEGERS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (r"(\w+_)?(segment_ids)", ([0, 0, 1], [0, 1])),
    (r"num_segments|num_elements|nrows", (3,)),
    (r"value_rowids", ([0, 0, 2],)),
    (r"labels_indices", ([[0, 0], [1, 0]],)),
    (r"labels_values", ([1, 1],)),
    (r"(a|b|sp|input|sparse)_indices", (_COORDINATES,)),
    (
        r"(input|filter|orig_input)_(sizes|shape)",
        ([1, 4, 4, 2], [2, 2, 2, 2], [1, 3, 3, 3, 1], [2, 2, 2, 1, 1], [2, 3]),
    ),
    (r"(a|b|sp|dense)_shape", ([2, 3],)),
    (r"paddings|crops", ([[1, 1], [0, 1]], [[0, 0], [0, 0]], [[0, 0], [1, 1], [1, 1], [0, 0]], [[1, 1]])),
    (r"begin|start", ([0, 1], [1], [0, 0])),
    (r"end", ([2, 3], [3], [2, 2])),
    (r"strides", ([1, 1], [1], [1, 1, 1, 1])),
    (r"ksize", ([1, 2, 2, 1],)),
    (r"size", ([2, 2], [1, 2], [2], [1, 1], 3)),
    (r"block_shape", ([2, 2],)),
    (r"multiples", ([1, 2], [2])),
    (r"fft_length", ([4], [4, 4], [4, 4, 4])),
    (r"(\w+_)?(lengths?|sizes|splits)", ([1, 2], [0, 2, 3], [2, 2], *_SIZES)),
    (r"seq_len_max", (2,)),
    (r"seed|counter", ([1, 2],)),
    (r"key", ([7],)),
    (r"alg", (1,)),
    (r"num_bits", (8,)),
    (r"num_rows|num_cols", (-1,)),
    (r"num_lower|num_upper|k", (1,)),
    (r"box_ind", ([0, 0],)),
    (r"(\w+_)?(axis|axes|dims?|dimension)", (1, 0, [1], [0], *_SIZES)),
    (r"perm", ([1, 0], [0, 2, 1])),
    (r"shift", (1, [1])),
    (r"(\w+_)?(shape|shape_as_tensor)", _SIZES),
    (
        r"indices",
        ([0, 1], [0, 0, 1], _COORDINATES, [[0], [2]], 1, [[0, 1], [1, 1]], [[0], [1], [2]]),
    ),
)
# Shapes of numbers, by a pattern for the whole name; these come first.
_SHAPES_BY_NAME: tuple[tuple[str, tuple[list[int], ...]], ...] = (
    (r"(a|b|sp|input|sparse)_values", ([2],)),
    (r"values", ([2], [3])),
    (r"thresh|constant_values|(default|fill|padding)_value", ([],)),
    (r"scale|translation|offset", ([2],)),
    (r"inputs", ([2, 2, 3],)),
    (r"orig_output|grad|out_backprop", ([1, 4, 4, 2], [1, 3, 3, 3, 1], [1, 4, 4, 4])),
    (r"filter", ([2, 2, 2, 2], [2, 2, 2, 1, 1])),
    (r"boxes", ([2, 4],)),
    (r"transforms", ([1, 8],)),
    (r"means|stddevs|minvals|maxvals", ([],)),
)
_ANY_INTEGERS = (1, 0, [1], [0, 1], [0, 0, 1], [2, 3], [[0, 0]], [[0, 1], [1, 1]])

# Attrs without a useful default, by name.
_ATTRS: dict[str, tuple[Any, ...]] = {
    "equation": ("ab,bc->ac",),
    "frame_name": ("frame",),
    "interpolation": ("BILINEAR",),
    "row_partition_types": (["ROW_SPLITS"],),
    "OUTPUT_RAGGED_RANK": (1,),
    "pooling_ratio": ([1.0, 1.5, 1.5, 1.0],),
    "num_split": (2,),
    # Without these, two runs of an op differ.
    "seed": (1,),
    "seed2": (2,),
    "deterministic": (True,),
}
# For a list of sizes for each axis of a batch of images or volumes: the middle ones; the others are 1.
_WINDOWS = {"ksize": 2, "ksizes": 2}

# Inputs that may have to be empty: the running statistics of a batch norm in training.
_MAYBE_EMPTY = ("mean", "variance")

# Numbers that must lie in a range, by name.
_RANGES: dict[str, tuple[float, float]] = {
    "min": (-2.0, -1.5),
    "max": (1.5, 2.0),
    "stddevs": (0.5, 1.0),
    "scale": (0.5, 1.5),
    "alpha": (1.0, 2.0),
}


def integers(name: str) -> list[Any]:
    """Return the values that a whole-number input may have, the likeliest first, by its name in the OpDef."""
    by_name = next((values for pattern, values in _INTEGERS if re.fullmatch(pattern, name)), ())
    return [*by_name, *(value for value in _ANY_INTEGERS if value not in by_name)]


def shapes(name: str) -> list[list[int]]:
    """Return the shapes that an input of numbers may have, the likeliest first.

    One shape of each rank comes before a second one of any: a rank that is refused is refused for every
    shape.
    """
    by_name = next(
        (named_shapes for pattern, named_shapes in _SHAPES_BY_NAME if re.fullmatch(pattern, name)), ()
    )
    others = [shape for rank in (2, 1, 3, 4, 5, 0) for shape in SHAPES[rank] if shape not in by_name]
    others.sort(key=lambda shape: SHAPES[len(shape)].index(shape))
    return [*by_name, *others, *([[0]] if name in _MAYBE_EMPTY else [])]


def attr_values(name: str, kind: str, least: int) -> tuple[Any, ...]:
    """Return the values that an attr may have, the likeliest first; none if nothing is known about it.

    Args:
        name: the attr's.
        kind: the OpDef's word for its type.
        least: its least value, or least length; 0 if it has none.
    """
    if name in _ATTRS:
        return _ATTRS[name]
    if kind == "list(int)":
        rank = max(least, 4)  # an image's; 5 is a volume's
        middle = _WINDOWS.get(name, 1)
        return ([1, *[middle] * (rank - 2), 1],)
    if kind == "int":
        return (max(least, 1),)
    if kind == "shape":
        return tuple(shape for shapes in SHAPES[1:3] for shape in shapes[:2])
    return {"float": (1.0,), "list(float)": ([1.0],), "bool": (False,), "string": ("",)}.get(kind, ())


def is_known_attr(name: str) -> bool:
    """Whether an attr is written although it has a default."""
    return name in _ATTRS


def number_range(name: str) -> tuple[float, float] | None:
    """Return the range in which an input's numbers must lie, if its name suggests one."""
    key = next((key for key in _RANGES if re.search(rf"(^|_){key}(vals)?$", name)), None)
    return None if key is None else _RANGES[key]
