import pytest

from gradcheck_cli.results import CaseError, CaseResult, CheckResult, Report, Status, WorstElement
from tests.support.flat_results import altered, make_case, make_pair

SQUARE = make_case(
    "sparse_conv_2layer",
    "default",
    "specs/seeds/sparse_conv.yaml:1",
    status=Status.PASSED,
    duration_s=0.41,
    reproduce="gradcheck run specs/seeds/sparse_conv.yaml --case default --seed 0",
    checks=(CheckResult("linearity", Status.PASSED),),
    gradients_seen={"Conv2D": 2, "Relu": 1},
    pairs=(
        make_pair("dM1/dM0", "M1", "M0", Status.PASSED, evaluations=64, max_abs_error=1.89e-13,
                  max_rel_error=3.1e-13, allowed=1e-8, uncertainty=3e-12, elements=128),
        make_pair("dt1/dM0", "t1", "M0", Status.PASSED, connected=False, note="as expected"),
    ),
)  # fmt: skip
HUBER = make_case(
    "huber",
    "wide",
    "specs/huber.yaml:12",
    dtype="float32",
    status=Status.MISMATCHED,
    duration_s=0.05,
    reproduce="gradcheck run specs/huber.yaml --case wide --seed 0",
    numeric_dtype="float64",
    pairs=(
        make_pair("dy/dx", "y", "x", Status.MISMATCHED, max_abs_error=2e-3, max_rel_error=2e-3, allowed=1e-6,
                  uncertainty=3.1e-9, elements=16, wrong_elements=3,
                  worst=WorstElement((2, 5), (2, 5), 1.0, 0.998, 3.1e-9),
                  diagnosis=("analytic = 1.002 numeric in these elements",)),
    ),
    checks=(CheckResult("linearity", Status.MISMATCHED, "vjp(2 u) isn't 2 vjp(u)"),),
    warnings=("precision: tanh saturates",),
)  # fmt: skip
BROKEN = make_case(
    "broken",
    "default",
    "specs/broken.yaml:1",
    status=Status.ERROR,
    duration_s=0.0,
    reproduce="gradcheck run specs/broken.yaml --case default --seed 0",
    error=CaseError(
        "import",
        "No module named 'numpi'.\nSearched: specs, /home/me/project",
        ('File "ops.py", line 3, in <module>', "  import numpi"),
    ),
)


@pytest.fixture
def passed() -> CaseResult:
    return SQUARE


@pytest.fixture
def mismatched() -> CaseResult:
    return HUBER


@pytest.fixture
def broken() -> CaseResult:
    return BROKEN


@pytest.fixture
def report() -> Report:
    return Report("0.1.0", "2.21.0", "3.11.7", seed=0, cases=(SQUARE, HUBER, BROKEN), duration_s=0.9)


@pytest.fixture
def with_pair():
    """Return a function that makes a case of one pair, changed as asked."""

    def make(status: Status = Status.PASSED, **changes: object) -> CaseResult:
        pair = altered(SQUARE.pairs[0], status=status, **changes)
        return altered(SQUARE, status=status, pairs=(pair,), checks=())

    return make
