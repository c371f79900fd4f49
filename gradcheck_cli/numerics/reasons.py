"""Verdicts, and the reasons why numbers can't decide, each with its message and remedy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Verdict(IntEnum):
    """What the numbers say about one element."""

    PASS = 0
    KINK = 1  # passes, and is counted
    MISMATCH = 2
    INCONCLUSIVE = 3


class Reason(IntEnum):
    """Why an element is inconclusive; of a mismatch, `JOINED_KINKS` says that it is at a kink."""

    NONE = 0
    JUMP = 1
    NOISE = 2
    SINGULAR = 3
    DOMAIN = 4
    UNRESOLVED = 5
    STAIRCASE = 6
    LOW_PRECISION = 7
    TIES = 8
    JOINED_KINKS = 9
    ROUNDING = 10


@dataclass(frozen=True)
class Explanation:
    """What was found, and what to do about it."""

    message: str
    remedy: str

    def __str__(self) -> str:
        """Join both into one line."""
        return f"{self.message}; {self.remedy}" if self.message else ""


EXPLANATIONS: dict[Reason, Explanation] = {
    Reason.NONE: Explanation("", ""),
    Reason.JUMP: Explanation(
        "the function jumps at this point, so that it has no derivative here",
        "move the point off the discontinuity (away_from)",
    ),
    Reason.NOISE: Explanation(
        "noise of the forward's values, or their rounding, hides more of the slope than may be allowed",
        "choose inputs where the slope is larger beside the value, compute the forward more precisely, "
        "or state an atol that the noise allows",
    ),
    Reason.SINGULAR: Explanation(
        "the function, or its slope, isn't finite here",
        "move the point off the singularity (away_from, domain)",
    ),
    Reason.DOMAIN: Explanation(
        "the domain leaves no room to step to either side", "widen domain, or move the point off its bounds"
    ),
    Reason.UNRESOLVED: Explanation(
        "differences at smaller and smaller steps don't settle on one slope",
        "move the point to where the function is smoother, or compute the forward in a higher precision",
    ),
    Reason.STAIRCASE: Explanation(
        "the function moves by jumps between level or sloping treads, as rounding or quantisation does",
        "name the differentiable function that is meant (reference), or compute without rounding",
    ),
    Reason.LOW_PRECISION: Explanation(
        "this precision shows too few digits to tell",
        "check in float64, or give the forward a float64 path; in float64, check elements of very different "
        "sizes in separate cases, or state an atol",
    ),
    Reason.ROUNDING: Explanation(
        "rounding inside the gradient may move it as far as it is off, which is too far for a pass",
        "rewrite the gradient where terms cancel, or choose inputs where they don't",
    ),
    Reason.TIES: Explanation(
        "inputs are tied here, and the smooth pieces of the function around the point are too many, or too "
        "close to each other, to tell whether the gradient belongs to one",
        "move the point off the tie (min_gap, away_from)",
    ),
    Reason.JOINED_KINKS: Explanation(
        "several of TensorFlow's ops are at a kink here at once: each has a slope of its own there, but what "
        "the chain rule makes of these together is no slope of the function",
        "move the point off the kinks (away_from, min_gap)",
    ),
}
