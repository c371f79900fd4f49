"""Planted op faults, and right forwards, through `gradcheck blame`: what is named, and that 0 is never a lie.

    python -m tests.acceptance.blamed_faults            # 100 faults, 50 right forwards, some three minutes
    python -m tests.acceptance.blamed_faults --part 1/4

Each forward is a chain of ops, one of which has a gradient of its own: right, or wrong in one of ten ways. Of
a fault, `blame` is to name its function, or to say why it can't; it must never end with 0 where `run` fails.
Of a right forward, no op may be named.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gradcheck_cli.errors import GradcheckError
from gradcheck_cli.features.blame.blaming import blame_case
from gradcheck_cli.features.blame.path_blame import exit_code_of
from gradcheck_cli.results import CaseResult, Status
from gradcheck_cli.running.session import run_case, start_tensorflow
from gradcheck_cli.spec.load import load_mapping

if TYPE_CHECKING:
    from collections.abc import Callable

MODULE = "blamed_faults_made"
FAULTS = 100
RIGHT = 50
SEED = 23
SHAPES = ([3], [2, 3])
DTYPES = ("float64", "float64", "float32")


def faults() -> dict[str, Callable[[Any, Any, Any], Any]]:
    """Return what is made of a right gradient g, for an upstream u at x, by name."""
    import tensorflow as tf

    return {
        "factor": lambda g, _u, _x: 1.01 * g,
        "sign": lambda g, _u, _x: -g,
        "upstream ignored": lambda g, u, _x: g / tf.where(u == 0, tf.ones_like(u), u),
        "a mask": lambda g, _u, x: g * tf.cast(x > 0, x.dtype),
        "one element": lambda g, _u, _x: g * (1 + 0.02 * tf.one_hot(0, tf.shape(g)[-1], dtype=g.dtype)),
        "a term more": lambda g, u, _x: g + 0.1 * u,
        "summed": lambda g, _u, _x: tf.reduce_sum(g) * tf.ones_like(g),
        "reversed": lambda g, _u, _x: tf.reverse(g, [-1]),
        "another shape": lambda g, _u, _x: tf.reduce_sum(g)[None, None, None],
        "lossy in float32": lambda g, _u, _x: (g + 3e7) - 3e7 if g.dtype == tf.float32 else 1.01 * g,
    }


def forward(rng: random.Random, fault: str | None) -> Callable[[Any], Any]:
    """Return a chain of ops, one of which has a gradient of its own."""
    import tensorflow as tf

    smooth = [tf.sin, tf.tanh, tf.exp, tf.math.softplus, tf.sigmoid, tf.math.atan, tf.square, tf.cos]
    own = rng.choice(smooth)
    before = [rng.choice(smooth[:2]) for _ in range(rng.randrange(3))]
    after = [rng.choice(smooth[:6]) for _ in range(rng.randrange(3))]
    spoil = faults()[fault] if fault is not None else lambda g, _u, _x: g

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def planted(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = own(x)

        def planted_grad(u: Any) -> Any:
            return spoil(tf.gradients(y, x, u)[0], u, x)

        return y, planted_grad

    def chain(x: Any) -> Any:
        for one in (*before, planted, *after):
            x = one(x)
        return x

    return chain


def tell(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def look(number: int, fault: str | None) -> tuple[str, CaseResult, str]:
    """Return what `blame` says of one forward (named, innocent, undecided or 0), the run, and words."""
    rng = random.Random(SEED * 1000 + number)  # noqa: S311 (a table, no secret)
    setattr(sys.modules[MODULE], f"f{number}", forward(rng, fault))
    inputs = {"x": {"shape": rng.choice(SHAPES), "dtype": rng.choice(DTYPES)}}
    (case,) = load_mapping({"op": f"f{number}", "forward": f"{MODULE}:f{number}", "inputs": inputs})
    run = run_case(case)
    try:
        found = blame_case(case)
    except GradcheckError as error:
        return "undecided", run, str(error)
    code = exit_code_of(found)
    named = [op.place.gradient for one in found for op in one.blame.named]
    if code == 1:
        word = "named" if all("planted" in name for name in named) else "innocent"
    else:
        word = "0" if code == 0 else "undecided"
    reason = "; ".join(one.blame.run or one.blame.reason for one in found)
    return word, run, ", ".join(named) or reason


def main() -> None:
    """Go through the table."""
    parser = argparse.ArgumentParser(description="see the module's own text")
    parser.add_argument("--part", default="1/1")
    options = parser.parse_args()
    index, count = (int(part) for part in options.part.split("/"))
    start_tensorflow()
    sys.modules[MODULE] = ModuleType(MODULE)
    kinds = [*list(faults()) * (FAULTS // 10), *[None] * RIGHT]
    counts: Counter[tuple[str, str]] = Counter()
    lies = 0
    for number, fault in list(enumerate(kinds))[index - 1 :: count]:
        word, run, told = look(number, fault)
        fails = run.status is not Status.PASSED
        lies += word == "0" and fails
        counts["right" if fault is None else "fault" if fails else "fault that run passes", word] += 1
        tell(f"{number:3} {fault or 'right':18} run {run.status!s:12} blame {word:10} {told[:100]}")
    for (kind, word), times in sorted(counts.items()):
        tell(f"{kind}: {word} {times}")
    tell(f"exit 0 where run fails: {lies}")


if __name__ == "__main__":
    main()
