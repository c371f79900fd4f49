"""The functions of `functions.yaml` and the seeds, as cases and as plain TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gradcheck_cli.running.session import run_case, start_tensorflow
from gradcheck_cli.spec.load import load_cases
from gradcheck_cli.spec.values import draw_values
from tests.benchmarks.measuring import processor_seconds_of

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@dataclass(frozen=True)
class Measured:
    """One function: its case, the values of its first sample, and the function itself."""

    case: Case
    points: tuple[np.ndarray, ...]
    function: object

    @property
    def name(self):
        return self.case.op

    def verdict_seconds(self, samples):
        """Return the seconds of a whole verdict in this process, which must be that it passed."""
        case = replace(self.case, judging=replace(self.case.judging, samples=samples))
        found = []
        seconds = processor_seconds_of(lambda: found.append(run_case(case)))
        if found[0].status != "passed":
            raise RuntimeError(f"{self.name} must pass, but got {found[0].status}: {found[0]}")
        return seconds


def measured_functions(names=None):
    """Load the functions, or those of these names; TensorFlow starts with one thread.

    Raises:
        RuntimeError: none has such a name.
    """
    start_tensorflow(threads=1)
    seed = ROOT / "specs" / "seeds" / "sparse_conv.yaml"
    cases = [*load_cases([HERE / "functions.yaml"]), *load_cases([seed])[:1]]
    chosen = [case for case in cases if names is None or case.op in names]
    if not chosen:
        raise RuntimeError(
            f"no function {', '.join(names)}; there are {', '.join(case.op for case in cases)}"
        )
    return [_measured(case) for case in chosen]


def _measured(case):
    from gradcheck_cli.tensorflow_backend.users_code import importable

    module, _, attribute = case.code.forward.target.partition(":")
    with importable(case.origin.folder):
        function = getattr(import_module(module), attribute)
    points = tuple(np.asarray(draw_values.draw(case, tensor, 0)) for tensor in case.tensors)
    return Measured(case, points, function)
