"""The words of the spec format: each kind of thing that a spec names, in one table with its facts.

The format and its JSON Schema, the choices on the command line and the code read these tables. A new word is
an entry here and the code that implements it. Nothing heavy is imported: a command's help needs no numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

# How TensorFlow runs an op; `tensorflow_backend/modes` opens it so.
MODES = ("graph", "dynamic", "eager", "xla")

EXPECTATIONS = ("pass", "mismatch")  # of a case
PAIR_EXPECTATIONS = (*EXPECTATIONS, "disconnected", "zero", "skip")
# How a gradient can be wrong: a wrong number, None where the derivative isn't zero, NaN or infinity where it
# is finite, another shape or dtype than the input's, an exception.
MISMATCHES = ("value", "none", "nonfinite", "form", "raises")


@cache
def read_table(name: str) -> dict[str, Any]:
    """Return a table that is written as data: `words_of_others`, or the spec's `format`."""
    import yaml  # late: a command's help needs none

    text = Path(__file__).with_name(f"{name}.yaml").read_text("utf-8")
    tables: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 (safe)
    return tables


def words_of_others(kind: str, word: str) -> list[str]:
    """Return what to write here for another tool's word, by the table of a kind in `words_of_others.yaml`."""
    tables = read_table("words_of_others")
    return [line for line, words in tables[kind].items() if word in words.split()]


# Largest finite value: (2 - 2**-mantissa_bits) * 2**max_exponent (IEEE 754; bfloat16 has 7 mantissa bits).
LARGEST_FLOATS = {
    "float16": (2 - 2.0**-10) * 2.0**15,
    "bfloat16": (2 - 2.0**-7) * 2.0**127,
    "float32": (2 - 2.0**-23) * 2.0**127,
    "float64": (2 - 2.0**-52) * 2.0**1023,
}
# Words that stand for several dtypes in a list of them; the widest is last.
DTYPE_KINDS = {"floating": tuple(LARGEST_FLOATS), "complex": ("complex64", "complex128")}
LARGEST_FLOATS |= {"complex64": LARGEST_FLOATS["float32"], "complex128": LARGEST_FLOATS["float64"]}
# Why an op type has no spec.
EXCEPTIONS = ("gpu", "tpu", "dtensor", "removed", "raises", "nothing", "crash", "other")


@dataclass(frozen=True)
class Method:
    """How a pair is judged."""

    differences: str = "auto"  # which differences are taken: "auto", "central" or "ladder"
    # whether independent columns of a Jacobian are searched for and moved together
    guesses_sparsity: bool = False


METHODS = {
    "auto": Method(guesses_sparsity=True),
    "central": Method("central", guesses_sparsity=True),
    "ladder": Method("ladder"),
    "full": Method(guesses_sparsity=True),
    "probe": Method(),
}


@dataclass(frozen=True)
class Binding:
    """How a gradient is attached to a function."""

    has_gradient: bool = True  # whether the spec names a gradient; without one, TensorFlow's own is checked
    is_of_op_type: bool = False  # whether it may belong to an op type instead of a forward
    # whether it replaces the gradient of an op type, inside a forward if there is one
    is_override: bool = False
    # whether TensorFlow knows the dtypes of the forward's outputs; otherwise the spec must state them
    tells_outputs: bool = True
    is_numpy: bool = False  # whether the forward takes and returns NumPy arrays
    # whether the gradient belongs to the forward as a whole, so that none of its ops can be to blame
    is_one_op: bool = False


BINDINGS = {
    "autodiff": Binding(has_gradient=False, is_of_op_type=True),
    "custom_gradient": Binding(is_one_op=True),
    "override": Binding(is_of_op_type=True, is_override=True),
    "py_func": Binding(tells_outputs=False, is_numpy=True),
    "defun": Binding(tells_outputs=False, is_one_op=True),
}


@dataclass(frozen=True)
class CheckEntry:
    """A structural check that a spec can turn off, or on."""

    about: str  # what it requires
    is_of_vjp: bool = True  # whether it also runs on a vjp whose own gradient is checked
    is_on: bool = True  # whether it runs unless a spec turns it off


CHECKS = {
    "all_zero": CheckEntry("A connected pair isn't zero at every sample."),
    "batched": CheckEntry(
        "`tf.vectorized_map` and `tape.jacobian` can vectorise the gradient, with the same result.",
        is_of_vjp=False,
        is_on=False,
    ),
    "custom_gradient": CheckEntry("Each custom gradient that the forward calls is run.", is_of_vjp=False),
    "inputs_unmodified": CheckEntry("NumPy code doesn't write to its arrays.", is_of_vjp=False),
    "linearity": CheckEntry("The vjp is linear in the upstream."),
    "modes": CheckEntry("Every mode gives the same gradient.", is_of_vjp=False),
    "override": CheckEntry("An override reaches every op of its type."),
    "precision": CheckEntry("The declared dtype is as accurate as its tolerance."),
    "repeat": CheckEntry("The same upstream gives the same gradient again."),
    "retrace": CheckEntry("The op gives the same gradient when it is traced again.", is_of_vjp=False),
    "variables_order": CheckEntry(
        "A custom gradient doesn't rely on the order of its variables.", is_of_vjp=False
    ),
    "zero_upstream": CheckEntry("A zero upstream gives zero."),
}

ON_REQUEST = frozenset(name for name, check in CHECKS.items() if not check.is_on)

# Ways of corrupting a gradient, for `gradcheck mutate`, in the words of its report.
CORRUPTIONS = {
    "factor": "multiplied by 1.01",
    "sign": "its sign flipped",
    "element": "one element changed by 1 %",
    "upstream": "its upstream ignored",
    "none": "None in its place",
    "transpose": "transposed, where it is square",
    "swap": "swapped with another input's of the same shape",
    "conjugate": "conjugated, where it is complex",
    "small": "its smallest element off by what is claimed",
    "mean": "a mean for a sum, or a sum for a mean",
    "axis": "along another axis of the same size",
    "row": "a part of the upstream left out",
    "zero": "a part dropped, or a factor detached",
    "branch": "a branch or mask taken as constant",
    "ones": "a factor left out",
    "repeats": "repeated indices not added up",
    "size": "a size replaced by its number",
}


@dataclass(frozen=True)
class Generator:
    """A source of an input's values; each is a key of an input."""

    # the kinds of dtype that it can fill; empty for any kind that its values fit
    families: tuple[str, ...] = ()
    dtype: str = ""  # the dtype of an input that names none; empty for the case's
    least_rank: int = 0  # the least rank of the shape
    is_square: bool = False  # whether the last two dimensions must be equal
    is_fixed: bool = False  # whether the values are written down, with their own shape, instead of drawn
    # whether each element is drawn by itself. Then `constraints` has its distribution; otherwise
    # `draw_values` draws the whole array.
    is_elementwise: bool = False
    is_continuous: bool = False  # whether elements can be moved apart by any distance (`min_gap`)
    can_mirror: bool = True  # whether one triangle of a matrix may be mirrored to make it `symmetric`


_INEXACT = ("float", "complex")
_NUMBERS = (*_INEXACT, "integer")
GENERATORS = {
    "value": Generator(is_fixed=True),
    "file": Generator(is_fixed=True),
    "uniform": Generator(_INEXACT, is_elementwise=True, is_continuous=True),
    "normal": Generator(_INEXACT, is_elementwise=True, is_continuous=True),
    "integers": Generator(_NUMBERS, is_elementwise=True),
    "choice": Generator(is_elementwise=True),
    "bool": Generator(("bool",), "bool"),
    "one_hot": Generator(_NUMBERS, least_rank=1, can_mirror=False),
    "spd": Generator(_INEXACT, least_rank=2, is_square=True),
    "triangular": Generator(_INEXACT, least_rank=2, can_mirror=False),
    "probabilities": Generator(("float",), least_rank=1, can_mirror=False),
    "generator": Generator((*_NUMBERS, "bool")),  # of an installed package
}
# Other sources of values, which can't be written in a spec.
SOURCES = {
    **GENERATORS,
    "default": Generator((*_NUMBERS, "bool")),  # normal, integers from 0 to 9, or fair booleans
    "places": Generator(),  # distinct places of a sparse tensor's nonzeros
    "variable": Generator(is_fixed=True),  # the value of a variable of the forward
}


# What `dtypes` may vary: the families that have gradients.
VARYING_DTYPES = tuple(name for of_kind in DTYPE_KINDS.values() for name in of_kind)
DTYPES = (
    *VARYING_DTYPES,
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
    *("bool", "string"),
)
DEFAULT_DTYPE = "float64"
# What lists of `dtypes` and of `second_order` may hold.
DTYPES_AND_KINDS = (*VARYING_DTYPES, *DTYPE_KINDS)
DTYPES_AND_MODES = (*VARYING_DTYPES, *MODES)

INTEGER_RANGES = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}
