"""The dtypes that a spec may name, and what fits into each; no numpy, so that validating stays fast."""

from __future__ import annotations

# What `dtypes` may vary: the families that have gradients.
VARYING_DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
DTYPES = (
    *VARYING_DTYPES,
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
    *("bool", "string"),
)
DEFAULT_DTYPE = "float64"

INTEGER_RANGES = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
}

# Largest finite value: (2 - 2**-mantissa_bits) * 2**max_exponent (IEEE 754; bfloat16 has 7 mantissa bits).
LARGEST_FLOATS = {
    "float16": (2 - 2.0**-10) * 2.0**15,
    "bfloat16": (2 - 2.0**-7) * 2.0**127,
    "float32": (2 - 2.0**-23) * 2.0**127,
    "float64": (2 - 2.0**-52) * 2.0**1023,
}
LARGEST_FLOATS["complex64"] = LARGEST_FLOATS["float32"]
LARGEST_FLOATS["complex128"] = LARGEST_FLOATS["float64"]


def kind_of(dtype: str) -> str:
    """Return which family a dtype belongs to: float, complex, integer, bool or string."""
    if dtype in INTEGER_RANGES:
        return "integer"
    if dtype.startswith("complex"):
        return "complex"
    if dtype in LARGEST_FLOATS:
        return "float"
    return "bool" if dtype == "bool" else "string"
