"""Stands in for the spec reader and the engine: the command line is tested by what it is told."""

import sys
from contextlib import suppress
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from gradcheck_cli.checking.ops.operation import TensorInfo
from gradcheck_cli.checking.pairs.pair import Differencing, PairSample
from gradcheck_cli.cli.main import run_command
from gradcheck_cli.results import CaseError, Report, Status, WorstElement
from gradcheck_cli.spec.case import Argument, Case, CodeUnderTest, InputSpec, Origin, OutputSpec
from tests.support import flat_results
from tests.support.flat_results import altered, make_pair


def make_case(op="op", name="default", outputs=("y",), inputs=("x",), **changes):
    case = Case(
        op,
        name,
        "float64",
        tuple(Argument(tensor, (InputSpec(tensor, "float64", (4,)),)) for tensor in inputs),
        tuple(map(OutputSpec, outputs)),
        code=CodeUnderTest(variables=False),
        origin=Origin(f"specs/{op}.yaml", "specs", 1),
    )
    return altered(case, **changes)


def make_result(op="op", status=Status.PASSED, case="default", **changes):
    pair = make_pair("dy/dx", "y", "x", status, elements=4, max_abs_error=1e-12, allowed=1e-8)
    if status is Status.MISMATCHED:
        worst = WorstElement((0,), (0,), 1.0, 2.0, 1e-9)
        pair = altered(pair, wrong_elements=1, max_abs_error=1.0, worst=worst)
    error = CaseError("forward", "ValueError: no") if status is Status.ERROR else None
    where = (op, case, f"specs/{op}.yaml:1", "graph", "float64", status, 0.1)
    again = f"gradcheck run specs/{op}.yaml --case {case} --seed 0"
    result = flat_results.make_case(*where, again, error=error, pairs=() if error else (pair,))
    return altered(result, **changes)


class Engine:
    """The spec reader and the engine; tests set what they find, and read what they were asked."""

    def __init__(self):
        self.cases = [make_case()]
        self.results = [make_result()]
        self.report = {}  # further fields of the report
        self.asked = {}
        self.view = None
        self.load_error = None
        self.during = lambda: None

    def load_cases(self, paths, *, seed=None):
        self.asked.update(paths=list(paths), load_seed=seed)
        if self.load_error is not None:
            raise self.load_error
        return tuple(self.cases)

    def load(self, paths, *, seed=None):
        return SimpleNamespace(cases=self.load_cases(paths, seed=seed), exceptions=())

    def start_workers(self, ctx, options, reports=()):
        self.asked.update(processes=options)
        return SimpleNamespace(status=lambda: "")

    def run_in_workers(self, workers, cases, *, on_progress, on_case, mark=None, **rest):
        self.asked.update(cases=list(cases))
        results = [result if mark is None else mark(result) for result in self.results]
        self.during()
        for case, result in zip(cases, results, strict=False):
            on_progress(case, None)
            on_case(result)
        fields = {"seed": 0, "cases": tuple(results), "duration_s": 0.9, **self.report}
        return Report("0.1.0", "2.21.0", "3.11.7", **fields)

    def pair_view(self, case, label):
        self.asked.update(case=case, label=label)
        self.during()
        return self.view


@pytest.fixture
def engine(monkeypatch, tmp_path):
    fake = Engine()
    session = ModuleType("session")
    monkeypatch.setattr("gradcheck_cli.spec.load.load_cases", fake.load_cases)
    monkeypatch.setattr("gradcheck_cli.spec.load.load", fake.load)
    with suppress(ImportError):  # where the feature is deleted
        monkeypatch.setattr("gradcheck_cli.features.page.jacobian_text.pair_view", fake.pair_view)
    monkeypatch.setattr("gradcheck_cli.cli.commands.run.start_workers", fake.start_workers)

    # Looked up as a run begins, since a test may replace it.
    def run_in_workers(workers, cases, **rest):
        return fake.run_in_workers(workers, cases, **rest)

    monkeypatch.setattr("gradcheck_cli.running.run_loop.run_in_workers", run_in_workers)
    session.start_tensorflow = lambda: None
    monkeypatch.setitem(sys.modules, "gradcheck_cli.running.session", session)
    cache = tmp_path / "cache"
    monkeypatch.setattr("gradcheck_cli.cli.options.case_options.default_cache", lambda: cache)
    return fake


@pytest.fixture
def invoke(capsys, monkeypatch):
    """Run a command line in this process; return its exit code, standard output and standard error."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments):
        code = run_command(arguments)
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return call


@pytest.fixture
def a_case():
    return make_case


@pytest.fixture
def a_result():
    return make_result


@pytest.fixture
def a_view():
    """The pair dc/da of c = a b, b = [[5, 6], [7, 8]]."""
    from gradcheck_cli.features.page.jacobian_text import PairView  # not there if features are deleted

    matrix = np.kron(np.eye(2), np.array([[5.0, 7.0], [6.0, 8.0]]))
    codes = np.zeros(matrix.shape, np.int8)
    error = np.full(matrix.shape, 1e-9)
    how = Differencing("central", 1, "float64")
    sample = PairSample(matrix, matrix, error, error, codes, codes, is_connected=True, differencing=how)
    output, taken = TensorInfo("c", "float64", (2, 2)), TensorInfo("a", "float64", (2, 2))
    return PairView("dc/da", output, taken, 0, sample, make_pair("dc/da", "c", "a", Status.PASSED))
