# ruff: noqa: T201 (a script: printing is what it is for)
"""Measure what gradcheck costs, and print tables of ratios measured in one run: `python -m tests.benchmarks`.

Name one or more groups to measure those alone. The sides of a ratio take turns, and each is the median of its
rounds, since a shared machine changes speed. Nothing here is a test: times fail nobody.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

GROUPS = {
    "jacobian": "the whole verdict against tf.test.compute_gradient",
    "others": "the whole verdict against PyTorch's gradcheck and JAX's check_grads",
    "models": "single errors planted into an MLP, an LSTM and a transformer; common mistakes",
    "growth": "time and memory against the number of elements",
    "memory": "what a run of many cases takes over time, by processes",
    "specs": "all of specs/ at -j 2 against -j 1",
    "cluster": "a Dask cluster: what the scheduler takes, and how runs grow with workers",
    "startup": "short commands against `import tensorflow`",
}


def _count(text):
    number = int(float(text))
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, but got {text}")
    return number


def _options():
    listed = "\n".join(f"  {name:10}{what}" for name, what in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=f"{__doc__}\ngroups:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="default: all of them")
    parser.add_argument(
        "--rounds", type=_count, help="how often each side is measured (default: the group's own)"
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="jacobian, others, growth: this function"
    )
    parser.add_argument("--plants", type=_count, default=200, help="models: how many errors (default 200)")
    parser.add_argument("--tasks", type=_count, default=10_000, help="cluster: how many (default 10000)")
    parser.add_argument("--cases", type=_count, default=2_000, help="memory: how many (default 2000)")
    parser.add_argument("--method", help="growth: as in a spec (default: auto)")
    parser.add_argument(
        "--largest", type=_count, default=10**7, help="growth: the most elements (default 1e7)"
    )
    parser.add_argument(
        "--timeout", type=float, default=120, help="growth: seconds for one size (default 120)"
    )
    options = parser.parse_args()
    unknown = [name for name in options.groups if name not in GROUPS]
    if unknown:
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    return options


def main():
    """Measure the groups asked for; the exit code is 1 if one couldn't be measured."""
    options = _options()
    # The package of this checkout, here and in every process started from here, installed or not.
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    from gradcheck_cli.errors import GradcheckError
    from gradcheck_cli.running.limits import hold_to_one_thread, usable_cores

    hold_to_one_thread(os.environ)
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    print(
        f"TensorFlow {version('tensorflow')}, NumPy {version('numpy')}, Python {platform.python_version()}, "
        f"{usable_cores()} cores\n",
        flush=True,
    )
    failed = False
    for name in options.groups or GROUPS:
        began = time.perf_counter()
        try:
            for text in import_module(f"tests.benchmarks.group_{name}").run(options):
                print(text, flush=True)
        except (GradcheckError, RuntimeError) as error:
            print(f"{name} couldn't be measured: {error}", flush=True)
            failed = True
        print(f"\n({name}: {time.perf_counter() - began:.0f} s)\n", flush=True)
    return int(failed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read it left, as `head` does; nor may the last flush complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
