# ruff: noqa: T201 (a script: printing is what it is for)
"""Judge many random compositions and print what came of them: `python -m tests.numerics.campaign 10000`."""

from __future__ import annotations

import argparse
import time

from gradcheck_cli.numerics import FLOAT32, FLOAT64
from tests.numerics.numerics_random import Tally

# Errors planted into the largest element: the least that the tolerance table promises to find.
ERRORS = {"float64": 1e-4, "float32": 1e-2}


def main() -> None:
    """Run the campaign for float64 and float32."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("examples", type=int, nargs="?", default=1000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--precision", choices=["float64", "float32"], action="append")
    arguments = parser.parse_args()
    for precision in (FLOAT64, FLOAT32):
        if arguments.precision and precision.name not in arguments.precision:
            continue
        tally, began = Tally(), time.time()
        for seed in range(arguments.start, arguments.start + arguments.examples):
            tally.judge(seed, precision, ERRORS[precision.name])
        print(precision.name, f"{arguments.examples} examples in {time.time() - began:.0f} s")
        for name, count in sorted(tally.counts.items()):
            print(f"  {count:7d}  {name}")
        print(f"  evaluations per input element: {tally.evaluations / tally.inputs:.2f}")
        for line in tally.bad:
            print(line)


if __name__ == "__main__":
    main()
