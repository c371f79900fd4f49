"""Describes an op type for a draft of its spec: inputs and attrs from its OpDef, and inputs that it accepts.

Its shape function is asked which inputs fit, then its kernel.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.init.draft import Draft, DraftInput
from gradcheck_cli.spec.words import DTYPES, VARYING_DTYPES
from gradcheck_cli.spec.yaml_tree import as_flow
from gradcheck_cli.tensorflow_backend import frames
from gradcheck_cli.tensorflow_backend.binding.flat_tensors import unknown_op_type
from gradcheck_cli.tensorflow_backend.private import private_graphs

LENGTH = 2  # of a list input
_MOST_SETTINGS = 16  # attrs and dtypes that are tried together
# The order in which dtypes are tried: those with gradients first, precise ones before coarse ones.
_DTYPES = ("float64", "complex128", "float32", "complex64", *VARYING_DTYPES, "int32", "int64")
_WRITTEN = ("int", "float", "bool", "string", "shape", "type", "list(int)", "list(float)", "list(string)")


@dataclass
class OpDrafts:
    """Drafts of an op type's spec with inputs that it accepts."""

    first: Draft  # the draft to write if there are no others
    # drafts that its kernel accepts, the likeliest first; each is searched for on request
    accepted: Iterator[Draft] = field(default_factory=lambda: iter(()))
    why_not: str = ""  # why there are none, once that is known


def describe_op_type(op_type: str, may_try: Callable[[str], bool] = lambda _call: True) -> OpDrafts:
    """Describe an op type, with inputs that it accepts.

    Raises:
        CaseFailedError: there is no such op type.
    """
    definition = private_graphs.op_def(op_type)
    if definition is None:
        raise CaseFailedError("op_type", unknown_op_type(op_type))
    first = _draft(definition, _settings(definition)[0])
    drafts = OpDrafts(first, why_not=_reason_unguessable(definition))
    if not drafts.why_not:
        drafts.accepted = _accepted_drafts(definition, drafts, may_try)
    return drafts


def _accepted_drafts(definition: Any, drafts: OpDrafts, may_try: Callable[[str], bool]) -> Iterator[Draft]:
    furthest, op_type = -1, definition.name
    for values, settings in itertools.product(("", "positive definite"), _settings(definition)):
        draft = _draft(definition, settings)
        choices = {
            argument.name: _choices(argument, draft_input.says)
            for argument, draft_input in zip(definition.input_arg, draft.inputs, strict=True)
        }
        # Inputs with given values come first: as counts or indices, they determine the shapes of the others.
        names = sorted(choices, key=lambda name: not _is_given(choices[name]))
        attrs = draft.keys.get("attrs", {})
        question = Question(op_type, attrs, {name: choices[name] for name in names}, values, may_try)
        is_accepted = False
        for says in itertools.islice(question.answers(), _MOST_ANSWERS):
            is_accepted = True
            yield replace(draft, inputs=tuple(replace(made, says=says[made.name]) for made in draft.inputs))
        if is_accepted:
            return
        if question.reached > furthest:
            furthest = question.reached
            drafts.why_not = f"it takes no inputs that were tried: {question.why_not}"


def _reason_unguessable(definition: Any) -> str:
    """Say why no spec of this op type alone can run; empty if one may."""
    name, removed = definition.name, definition.deprecation.version
    if 0 < removed <= tf.version.GRAPH_DEF_VERSION:
        return f"TensorFlow has removed {name}: {definition.deprecation.explanation}"
    reasons = [
        f"input {argument.name} takes a handle to an object, which no input of a spec can be"
        for argument in definition.input_arg
        if _is_handle(argument)
    ]
    reasons += [
        f"attr {attr.name} takes a function, which no attr of a spec can be"
        for attr in definition.attr
        if "func" in attr.type and not attr.HasField("default_value")
    ]
    if definition.output_arg and all(_is_handle(argument) for argument in definition.output_arg):
        reasons.append(f"output {definition.output_arg[0].name} is a handle to an object, not numbers")
    if not reasons:
        return ""
    return (
        f"{reasons[0]}: write a function of tensors that makes it, calls tf.raw_ops.{name} and returns "
        f"tensors, and name that: 'forward: MODULE:FUNCTION' in place of op_type, with 'covers: [{name}]'."
    )


def _is_handle(argument: Any) -> bool:
    kinds = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)
    return argument.is_ref or argument.type in kinds or argument.name == "handle"


def _settings(definition: Any) -> list[dict[str, Any]]:
    """Return combinations of attrs, including dtypes of inputs, under the names of their attrs."""
    inferred = _inferred_attrs(definition)
    names, choices = [], []
    for attr in definition.attr:
        has_default = attr.HasField("default_value")
        values: tuple[Any, ...] = ()
        if attr.type == "type":
            allowed = [tf.as_dtype(dtype).name for dtype in attr.allowed_values.list.type]
            values = tuple(name for name in dict.fromkeys(_DTYPES) if not allowed or name in allowed)
            # A dtype that is never a float's, such as an index's, or that may be any, matters little.
            is_number = any(name in VARYING_DTYPES for name in values)
            values = values[:4] if is_number and (allowed or attr.name not in inferred) else values[:1]
        elif attr.name not in inferred and (not has_default or attr.name in _ATTRS):
            allowed = [value.decode() for value in attr.allowed_values.list.s]
            least = attr.minimum if attr.has_minimum else 0
            values = tuple(allowed) or attr_values(attr.name, attr.type, least)
        if values:
            names.append(attr.name)
            choices.append(values)
    combinations = [dict(zip(names, values, strict=True)) for values in itertools.product(*choices)]
    # Those that differ from the first in one choice come before those that differ in two.
    combinations.sort(
        key=lambda settings: sum(
            values.index(settings[name]) for name, values in zip(names, choices, strict=True)
        )
    )
    return combinations[:_MOST_SETTINGS]


def _inferred_attrs(definition: Any) -> set[str]:
    """Return the attrs that follow from the inputs."""
    return {
        name
        for argument in definition.input_arg
        for name in (argument.type_attr, argument.number_attr, argument.type_list_attr)
    }


def _draft(definition: Any, settings: dict[str, Any]) -> Draft:
    """Return the draft with these attrs; its inputs have no shapes yet."""
    inferred = _inferred_attrs(definition)
    kinds = {attr.name: attr for attr in definition.attr}
    defaults = {
        attr.name: _plain_default(attr.default_value)
        for attr in definition.attr
        if attr.name not in inferred and attr.HasField("default_value") and attr.type in _WRITTEN
    }
    attrs = {
        name: value
        for name, value in settings.items()
        if name not in inferred and (name not in defaults or defaults[name] != value)
    }
    keys: dict[str, Any] = {"op_type": definition.name}
    remarks = {}
    if attrs:
        keys["attrs"] = attrs
        remarks["attrs"] = "replace by yours"
    inputs = tuple(_draft_input(argument, kinds, settings) for argument in definition.input_arg)
    more = {name: value for name, value in defaults.items() if name not in attrs}
    notes = [f"attrs: {as_flow(more)}   # their defaults"] if more else []
    notes += [
        f"{attr.name}: one of {', '.join(allowed)}"
        for attr in definition.attr
        if (allowed := [value.decode() for value in attr.allowed_values.list.s])
    ]
    notes += [f"dtypes: [{', '.join(_floating_dtypes(kinds, definition))}]"]
    notes += ["second_order: true"]
    return Draft(definition.name, keys, inputs, remarks, tuple(notes))


def _plain_default(value: Any) -> Any:
    kind = value.WhichOneof("value")
    content: Any = getattr(value, kind) if kind else ""
    if kind == "list":
        return [*content.i, *content.f, *(text.decode() for text in content.s)]
    if kind == "shape":
        return None if content.unknown_rank else [dimension.size for dimension in content.dim]
    if kind == "type":
        return tf.as_dtype(content).name
    return content.decode() if isinstance(content, bytes) else content


def _draft_input(argument: Any, kinds: dict[str, Any], settings: dict[str, Any]) -> DraftInput:
    dtype = settings.get(argument.type_attr, "float64")
    if argument.type:
        dtype = str(tf.as_dtype(argument.type).name)
    says = {} if dtype == "float64" or dtype not in DTYPES else {"dtype": dtype}
    count_attr = kinds.get(argument.number_attr or argument.type_list_attr)
    count = 0 if count_attr is None else max(LENGTH, count_attr.minimum if count_attr.has_minimum else 0)
    if count and argument.name.endswith("splits"):
        count = 1  # one ragged dimension
    if len(settings.get("row_partition_types", ())) and argument.number_attr:
        count = len(settings["row_partition_types"])
    return DraftInput(argument.name, [dict(says) for _ in range(count)] if count else says, is_guess=True)


def _choices(argument: Any, says: Any) -> list[Any]:
    """Return what a spec may say about an input, the likeliest first."""
    if isinstance(says, list):
        return [
            elements
            for apart in (True, False)
            for choice in _choices(argument, says[0])
            if (elements := _list_of(choice, len(says), apart=apart)) is not None
        ]
    dtype = says.get("dtype", "float64")
    if dtype.startswith(("int", "uint")):
        return [{"value": value, **says} for value in integers(argument.name)]
    if dtype == "string":
        return [{"value": "text", **says}]
    ranges = (numbers for key, numbers in _RANGES.items() if re.search(rf"(^|_){key}(vals)?$", argument.name))
    drawn = next(({"uniform": {"low": low, "high": high}} for low, high in ranges), {})
    return [{"shape": shape, **drawn, **says} for shape in shapes(argument.name)]


def _list_of(element: dict[str, Any], count: int, *, apart: bool) -> list[dict[str, Any]] | None:
    """Return a list input's elements: equal, or different whole numbers; `None` if these can't differ."""
    if not apart:
        return [dict(element) for _ in range(count)]
    value = element.get("value")
    if not isinstance(value, list) or not all(isinstance(number, int) for number in value):
        return None
    return [{**element, "value": [number + index * len(value) for number in value]} for index in range(count)]


def _is_given(choices: list[Any]) -> bool:
    """Whether a spec gives an input's values, not only its shape."""
    first = choices[0][0] if isinstance(choices[0], list) else choices[0]
    return "value" in first


def _floating_dtypes(kinds: dict[str, Any], definition: Any) -> Iterator[str]:
    attrs = [kinds[argument.type_attr] for argument in definition.input_arg if argument.type_attr in kinds]
    allowed = [tf.as_dtype(dtype).name for dtype in attrs[0].allowed_values.list.type] if attrs else []
    yield from [name for name in VARYING_DTYPES if not allowed or name in allowed] or ["float64"]


# Inputs that it accepts.

# Limits of calls: of a shape function, which takes a millisecond, and of a kernel, which takes a few.
_MOST_BUILT = 600
_MOST_RUN = 60
_MOST_ANSWERS = 3
_MOST_COST = 12
_HANDLES = (tf.variant, tf.resource)  # they can't be read
_NO_KERNEL = ("No OpKernel was registered", "Could not find device")

Says = Any  # what a spec says about an input: a mapping, or a list of them for a list input


@dataclass
class Question:
    """One op type with its attrs, and the choices for each of its inputs."""

    op_type: str  # TensorFlow's name for it
    attrs: Mapping[str, Any]
    # for each input, what a spec may say about it, the likeliest first; in the order in which they are chosen
    choices: Mapping[str, Sequence[Says]]
    values: str = ""  # how the numbers are drawn where a choice gives a shape alone: "", "positive definite"
    # says whether a kernel may be called, given a text that names the call; not if that call has ended a
    # process before
    may_try: Callable[[str], bool] = lambda _call: True
    why_not: str = ""  # the refusal that came furthest
    reached: int = -1
    has_kernel: bool = True
    takes_unknown: bool | None = None
    built: int = 0
    run: int = 0
    graph: tf.Graph = field(default_factory=tf.Graph)
    # choices so far -> the next ones that fit, and where more come from
    fitting: dict[tuple[int, ...], tuple[list[int], Iterator[int]]] = field(default_factory=dict)

    def answers(self) -> Iterator[dict[str, Says]]:
        """Yield combinations of inputs that the shape function and the kernel accept.

        Inputs are chosen one after another, and later ones have unknown shapes meanwhile. So a choice that
        the shape function refuses is never combined with choices for later inputs. The combinations closest
        to the likeliest one come first.

        References:
            Harvey and Ginsberg, Limited discrepancy search, IJCAI 1995.
        """
        for cost in range(_MOST_COST):
            for choice_indices in self._continue((), cost):
                if self._runs(self._choices_at(choice_indices)):
                    yield self._choices_at(choice_indices)
                if self._is_spent():
                    return

    def _is_spent(self) -> bool:
        return not self.has_kernel or self.built >= _MOST_BUILT or self.run >= _MOST_RUN

    def _continue(self, chosen: tuple[int, ...], cost: int) -> Iterator[tuple[int, ...]]:
        """Yield the continuations of these choices that pass over `cost` likelier choices that fit, too."""
        if len(chosen) == len(self.choices):
            if cost == 0 and (chosen or self._fits(chosen)):
                yield chosen
            return
        for passed in range(cost + 1):
            choice_index = self._find_fitting(chosen, passed)
            if choice_index is None:
                return
            yield from self._continue((*chosen, choice_index), cost - passed)

    def _find_fitting(self, chosen: tuple[int, ...], rank: int) -> int | None:
        """Return the choice of this rank, from 0, among those that fit after these; `None` if none."""
        if chosen not in self.fitting:
            self.fitting[chosen] = [], self._list_fitting(chosen)
        so_far, more = self.fitting[chosen]
        so_far += itertools.islice(more, max(0, rank + 1 - len(so_far)))
        return so_far[rank] if rank < len(so_far) else None

    def _list_fitting(self, chosen: tuple[int, ...]) -> Iterator[int]:
        """Yield the choices for the next input that fit after these, each asked for once."""
        next_input = [*self.choices][len(chosen)]
        for index in range(len(self.choices[next_input])):
            if self._is_spent():
                return
            if self._fits((*chosen, index)):
                yield index

    def _choices_at(self, choice_indices: Sequence[int]) -> dict[str, Says]:
        chosen = zip(self.choices.items(), choice_indices, strict=False)
        return {name: choices[index] for (name, choices), index in chosen}

    def _fits(self, choice_indices: Sequence[int]) -> bool:
        """Whether the shape function accepts these inputs, with later ones of unknown shape."""
        if not self._is_asked_early() and len(choice_indices) < len(self.choices):
            return True
        self.built += 1
        try:
            with self.graph.as_default():
                self._create(self._choices_at(choice_indices))
        except Exception as error:  # noqa: BLE001 (a refusal, of whatever kind)
            self._note(error, len(choice_indices))
            return False
        return True

    def _is_asked_early(self) -> bool:
        """Whether the shape function accepts inputs of unknown shape."""
        if self.takes_unknown is None:
            self.takes_unknown = True
            self.takes_unknown = self._fits(())
        return self.takes_unknown

    def _runs(self, chosen: Mapping[str, Says]) -> bool:
        """Whether the kernel accepts these inputs and returns something."""
        self.run += 1
        if not self.may_try(f"{self.op_type} {dict(self.attrs)} {chosen}"):
            self.why_not = "its kernel ends the process on some inputs"
            return False
        random = np.random.default_rng(0)
        try:
            with tf.Graph().as_default() as graph:  # without the ops of earlier questions
                placeholders, results = self._create(chosen)
            feed = {tensor: self._draw(says, random) for tensor, says in placeholders}
            fetched = [tensor.op if tensor.dtype in _HANDLES else tensor for tensor in results]
            with tf.compat.v1.Session(graph=graph) as session:
                values = session.run(fetched, feed)
        except Exception as error:  # noqa: BLE001 (a refusal, of whatever kind)
            self._note(error, len(self.choices) + 1)
            self.has_kernel = not any(text in str(error) for text in _NO_KERNEL)
            return False
        return any(value is None or np.size(value) > 0 for value in values)

    def _note(self, error: Exception, reached: int) -> None:
        if reached > self.reached:
            self.reached, self.why_not = reached, _message_of(error)

    def _create(self, chosen: Mapping[str, Says]) -> tuple[list[tuple[Any, Says]], list[Any]]:
        """Create the op, other inputs with unknown shapes; return its placeholders and its outputs."""
        placeholders: list[tuple[Any, Says]] = []
        arguments: dict[str, Any] = dict(self.attrs)
        for name, choices in self.choices.items():
            says = chosen.get(name, choices[0])
            tensors = []
            for element in says if isinstance(says, list) else [says]:
                dtype = element.get("dtype", "float64")
                if name in chosen and "value" in element:
                    tensors.append(tf.constant(element["value"], dtype))
                    continue
                tensors.append(tf.compat.v1.placeholder(dtype, element["shape"] if name in chosen else None))
                placeholders.append((tensors[-1], element))
            arguments[name] = tensors if isinstance(says, list) else tensors[0]
        created = private_graphs.apply_op(self.op_type, arguments)
        return placeholders, [] if isinstance(created, tf.Operation) else tf.nest.flatten(created)

    def _draw(self, says: Mapping[str, Any], random: np.random.Generator) -> Any:
        shape, dtype = says["shape"], np.dtype(tf.as_dtype(says.get("dtype", "float64")).as_numpy_dtype)
        if "uniform" in says:
            return random.uniform(says["uniform"]["low"], says["uniform"]["high"], shape).astype(dtype)
        if dtype.kind == "b":
            return random.normal(size=shape) > 0
        drawn = random.normal(size=shape)
        if self.values and len(shape) > 1 and shape[-1] == shape[-2]:
            drawn = drawn @ np.swapaxes(drawn, -1, -2) + 2 * np.eye(shape[-1])
        return np.asarray(drawn).astype(dtype)


def _message_of(error: Exception) -> str:
    """Return an error's message; a kernel's follows the lines that say where it was raised."""
    lines = [line.strip() for line in str(getattr(error, "message", "")).splitlines()]
    node_line = next((index for index, line in enumerate(lines) if line.startswith("Node: ")), None)
    if node_line is None or node_line + 1 == len(lines):
        return frames.first_line(error)
    return f"{type(error).__name__}: {lines[node_line + 1]}"


# What is tried, by the names in the OpDef.

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

# Attrs without a useful default, by name; they are written although they may have one.
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


def _first_match(table: Sequence[tuple[str, tuple[Any, ...]]], name: str) -> tuple[Any, ...]:
    return next((values for pattern, values in table if re.fullmatch(pattern, name)), ())


def integers(name: str) -> list[Any]:
    """Return the values that a whole-number input may have, the likeliest first, by its name in the OpDef."""
    by_name = _first_match(_INTEGERS, name)
    return [*by_name, *(value for value in _ANY_INTEGERS if value not in by_name)]


def shapes(name: str) -> list[list[int]]:
    """Return the shapes that an input of numbers may have, the likeliest first.

    One shape of each rank comes before a second one of any: a rank that is refused is refused for every
    shape.
    """
    by_name = _first_match(_SHAPES_BY_NAME, name)
    others = [shape for rank in (2, 1, 3, 4, 5, 0) for shape in SHAPES[rank] if shape not in by_name]
    others.sort(key=lambda shape: SHAPES[len(shape)].index(shape))
    return [*by_name, *others, *([[0]] if name in _MAYBE_EMPTY else [])]


def attr_values(name: str, kind: str, least: int) -> tuple[Any, ...]:
    """Return the values that an attr may have, the likeliest first; none if nothing is known about it.

    `least` is its least value, or least length; 0 if it has none.
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
