"""Steps, differences, ladder, noise, kinks and comparison, with NumPy only; testable on plain functions.

A `Problem` is a function at a point. `judge` compares an analytic Jacobian with its differences; `estimate`
returns the differences alone.
"""

from gradcheck_cli.numerics.judge import Judgement, estimate, judge
from gradcheck_cli.numerics.precision import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    Precision,
    ToleranceRule,
    allowed_error,
    precision_of,
    rule_for,
)
from gradcheck_cli.numerics.problem import Problem
from gradcheck_cli.numerics.reasons import EXPLANATIONS, Explanation, Reason, Verdict

__all__ = [
    "BFLOAT16",
    "EXPLANATIONS",
    "FLOAT16",
    "FLOAT32",
    "FLOAT64",
    "Explanation",
    "Judgement",
    "Precision",
    "Problem",
    "Reason",
    "ToleranceRule",
    "Verdict",
    "allowed_error",
    "estimate",
    "judge",
    "precision_of",
    "rule_for",
]
