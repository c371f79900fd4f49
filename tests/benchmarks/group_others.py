"""others: the whole verdict, against PyTorch's gradcheck and JAX's check_grads of the same functions.

All get the same values, one point, and one thread. Each library is warm: its first check of a function
isn't counted. PyTorch's slow mode compares whole Jacobians, as the verdict does; its fast mode and JAX's
check_grads (reverse mode, first order) one random projection.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from tests.benchmarks.functions_measured import measured_functions
from tests.benchmarks.measuring import geometric_mean, in_turn, shown_ratio, shown_seconds, table
from tests.benchmarks.rival_process import RivalProcess

ROUNDS = 3
SIDES = {"PyTorch slow": ("torch", "slow"), "PyTorch fast": ("torch", "fast"), "JAX": ("jax", "")}


def run(options):
    rounds = options.rounds or ROUNDS
    yield f"## others: processor time of one thread each, median of {rounds} rounds in turn\n"
    yield "Seconds, and how many times as long as gradcheck it takes: above 1, gradcheck is faster.\n"
    ratios = {side: [] for side in SIDES}
    rows, refused = [], []
    with ExitStack() as stack:
        rivals = {name: stack.enter_context(RivalProcess(name)) for name in ("torch", "jax")}
        for one in measured_functions(options.only):
            if one.name == "sparse_conv":
                continue  # written in NumPy behind TensorFlow's py_func: there is no same function elsewhere
            found = in_turn(_sides(one, rivals, refused), rounds)
            rows.append([one.name, shown_seconds(found["gradcheck"])])
            for side, (name, _) in SIDES.items():
                if not rivals[name].installed:
                    rows[-1].append("not installed")
                    continue
                ratios[side].append(found[side] / found["gradcheck"])
                rows[-1].append(f"{shown_seconds(found[side])}, {shown_ratio(ratios[side][-1])}")
        means = [shown_ratio(geometric_mean(found)) if found else "" for found in ratios.values()]
        versions = [f"{rival.name} {rival.version}" for rival in rivals.values() if rival.installed]
    rows.append(["geometric mean", "", *means])
    yield table(["function", "gradcheck", *SIDES], rows)
    if versions:
        yield f"\n{', '.join(versions)}"
    yield from sorted(set(refused))


def _sides(one, rivals, refused):
    sides = {"gradcheck": partial(one.verdict_seconds, 1)}
    for side, (name, mode) in SIDES.items():
        rival = rivals[name]
        if rival.installed:
            rival.load(one.name, one.points)
            sides[side] = partial(_seconds, rival, side, one.name, mode, refused)
    return sides


def _seconds(rival, side, name, mode, refused):
    seconds, passed = rival.check(name, mode)
    if not passed:
        refused.append(f"{side} says of {name}, which is right, that it is wrong.")
    return seconds
