"""What is known of op types: by tables, and by the OpDefs that TensorFlow has of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend.dtypes import Array
from gradcheck_cli.tensorflow_backend.private import private_graphs

STOP = "StopGradient"  # the name under which held stops are counted
STOPS = frozenset({STOP})  # backpropagation ends at them, and a check may hold them at their base value
# Stateful by their OpDef, but their kernels don't depend on the run, unlike those of the TensorArrays and
# stacks of TensorFlow 1, which belong to the run.
FREE_STATEFUL = {
    "Assert",
    "Case",
    "CheckNumerics",
    "CheckNumericsV2",
    "Empty",
    "If",
    "Placeholder",
    "ReadVariableOp",
    "ResourceGather",
    "ResourceGatherNd",
    "StatefulPartitionedCall",
    "VarHandleOp",
    "VariableShape",
    "While",
}
# Stateful by their OpDef, but the same inputs give the same outputs.
_HARMLESS_STATEFUL = FREE_STATEFUL | {"DebugIdentityV2", "EagerPyFunc", "Print", "PrintV2", "PyFunc"}
# Other ops on variables and on tables, which are restored after each call, by the beginning of their types;
# and on a loop's stacks and TensorArrays of TensorFlow 1, which are created anew in each run.
_ON_RESTORED_STATE = (
    "AnonymousHashTable",
    "AnonymousMutable",
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    "AssignVariable",
    "HashTableV2",
    "LookupTable",
    "MutableDenseHashTableV2",
    "MutableHashTable",
    "ResourceApply",
    "ResourceCountUpTo",
    "ResourceScatter",
    "ResourceSparseApply",
    "ResourceStridedSliceAssign",
    "Stack",
    "TensorArray",
    "VarIsInitializedOp",
)
REFERENCE_VARIABLES = {"TemporaryVariable", "Variable", "VariableV2"}
# Ops that round, by the beginning of their type.
QUANTISERS = ("Ceil", "FakeQuant", "Floor", "QuantizeAndDequantize", "Rint", "Round", "TruncateDiv")
# Their result is a shape, which is no value.
SHAPES = frozenset({"OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"})
# Their derivative is zero wherever it exists.
FLAT = {"Ceil", "Floor", "Rint", "Round", "Sign", *SHAPES, *STOPS}
# They draw their pooling regions at each call, unless told not to; their OpDefs don't say so. Inside a loop,
# they return sequences of another length in some rounds, two for three. (TensorFlow 2.21)
FRACTIONAL = frozenset({"FractionalAvgPool", "FractionalMaxPool"})
NUMPY_CALLS = frozenset({"PyFunc", "PyFuncStateless"})  # EagerPyFunc has a gradient, by an internal tape
PYTHON_CALLS = (*sorted(NUMPY_CALLS), "EagerPyFunc")
# Samplers whose gradient is no derivative of the draw, but differentiates the distribution implicitly. The
# draw, at a fixed seed, is made by accepting and rejecting: it moves differently with the parameters.
IMPLICIT_SAMPLERS = {
    "RandomGamma",
    "StatelessParameterizedTruncatedNormal",
    "StatelessRandomGammaV2",
    "StatelessRandomGammaV3",
}
GENERATOR_DRAWS = {
    "NonDeterministicInts",
    "RngReadAndSkip",
    "RngSkip",
    "StatefulRandomBinomial",
    "StatefulStandardNormalV2",
    "StatefulTruncatedNormal",
    "StatefulUniform",
    "StatefulUniformFullInt",
    "StatefulUniformInt",
}
# Ops through which a tensor passes unchanged in a loop or a branch of TensorFlow 1.
UNCHANGED = {"Enter", "Exit", "Identity", "Merge", "NextIteration", "Switch"}
# Ops that draw at each call. Those that have a gradient with respect to their parameters (RandomGamma) are
# left out below: the draw itself moves with the parameters, so it can't be held.
_RANDOM = frozenset(
    {
        "AllCandidateSampler",
        "FixedUnigramCandidateSampler",
        "LearnedUnigramCandidateSampler",
        "LogUniformCandidateSampler",
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "StatefulStandardNormal",
        "ThreadUnsafeUnigramCandidateSampler",
        "TruncatedNormal",
        "UniformCandidateSampler",
        # Of a tf.random.Generator: RngReadAndSkip returns the state that stateless ops then draw from.
        *(GENERATOR_DRAWS - {"RngSkip"}),
    }
)
# Their result contains the input's own values, not only a draw: if it were held, a moving input would stay
# the same.
PASSES_INPUT_ON = frozenset({"RandomShuffle"})

# The op types that are another function on another side, with what decides, and who takes which side.

COMPARISONS = {
    "Greater": ">",
    "GreaterEqual": ">=",
    "Less": "<",
    "LessEqual": "<=",
    "Equal": "==",
    "NotEqual": "!=",
    "LogicalAnd": "&",
    "LogicalOr": "|",
}
# The attrs that name an op's bodies.
BODIES = {
    **dict.fromkeys(("While", "StatelessWhile"), ("body", "cond")),
    **dict.fromkeys(("If", "StatelessIf"), ("then_branch", "else_branch")),
    **dict.fromkeys(("Case", "StatelessCase"), ("branches",)),
    **dict.fromkeys(private_graphs.CALLS, ("f",)),
}
TRUTH = ("true", "false")
ROUNDS = ("no round", "one round", "more rounds")


@dataclass(frozen=True)
class Sides:
    """The sides of an op."""

    names: tuple[str, ...]
    taken: Callable[..., Sequence[Array]]  # for each side, which elements take it, by the values that decide
    inputs: tuple[int, ...] = (0,)  # the indices of the op's inputs that decide
    is_output: bool = False  # whether the op's first output decides instead


CONDITION = Sides(TRUTH, lambda value: (value != 0, value == 0))
_LARGER = Sides(("first larger", "second larger"), lambda one, other: (one > other, one < other), (0, 1))
# The sides of each op type. How its kink is held on one side: `twin.widening.PIECES`.
SIDES = {
    **dict.fromkeys(("Maximum", "Minimum"), _LARGER),
    "Relu6": Sides(("< 0", "inside", "> 6"), lambda x: (x < 0, (x > 0) & (x < 6), x > 6)),  # noqa: PLR2004 (its six)
    **dict.fromkeys(
        ("Relu", "LeakyRelu", "Elu", "Selu", "Abs", "Sign"),
        Sides(("> 0", "< 0"), lambda x: (x > 0, x < 0)),
    ),
    **dict.fromkeys(("Select", "SelectV2", "If", "StatelessIf"), CONDITION),
    **dict.fromkeys(
        ("While", "StatelessWhile"),
        Sides(ROUNDS, lambda count: (count < 1, count == 1, count > 1), is_output=True),
    ),
}


def is_random(op_type: str) -> bool:
    """Whether an op of this type draws, and its draw can be held."""
    return op_type in _RANDOM and not private_graphs.has_gradient(op_type)


def is_varying(op_type: str) -> bool:
    """Whether an op of this type has its own state, so that its results may vary: a random one.

    Variables and tables are state as well, but they are restored after each call.
    """
    definition = private_graphs.op_def(op_type)
    depends_on_inputs = op_type in _HARMLESS_STATEFUL or op_type.startswith(_ON_RESTORED_STATE)
    return definition is not None and definition.is_stateful and not depends_on_inputs


def definition_of(op_type: str) -> Any:
    """Return the OpDef of an op type.

    Raises:
        CaseFailedError: of kind "op_type": there is no such op type.
    """
    definition = private_graphs.op_def(op_type)
    if definition is None:
        raise CaseFailedError("op_type", describe_unknown(op_type))
    return definition


def describe_unknown(op_type: str) -> str:
    """Say that TensorFlow has no such op type, with the nearest ones."""
    near = difflib.get_close_matches(op_type, sorted(every_op_type()), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else " See 'gradcheck list --status all'."
    return f"TensorFlow {tf.__version__} has no op type {op_type!r}.{hint}"


def every_op_type() -> frozenset[str]:
    """Return every op type, with or without a gradient, those of loaded libraries included."""
    return private_graphs.op_types()


def inferred_attrs(definition: Any) -> set[str]:
    """Return the attrs of an OpDef that follow from the inputs."""
    return {
        name for arg in definition.input_arg for name in (arg.type_attr, arg.number_attr, arg.type_list_attr)
    }
