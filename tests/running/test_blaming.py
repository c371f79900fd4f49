"""What `run` adds to a mismatch by itself, and that it never costs the verdict."""

from types import SimpleNamespace

import pytest

from gradcheck_cli.checking.ops.operation import OpPlace, TensorInfo
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.blame import blaming
from gradcheck_cli.features.blame.blaming import LONG, MOST_PAIRS, explain_mismatches
from gradcheck_cli.features.blame.path_blame import Blame, OpVerdict
from gradcheck_cli.hooks import OpenCase
from gradcheck_cli.results import Status
from gradcheck_cli.running.session import start_tensorflow
from gradcheck_cli.spec.case import Case, CodeUnderTest, FunctionRef, Origin, Reference
from tests.support.flat_results import altered, make_pair

start_tensorflow()
CASE = Case(
    "f", "wide", "float64", (), seed=7, code=CodeUnderTest(FunctionRef("a:b")), origin=Origin("a b.yaml")
)
INPUTS = [TensorInfo(f"x{number}", "float64", (2,)) for number in range(6)]
OP = SimpleNamespace(
    inputs=INPUTS,
    outputs=[TensorInfo("y", "float64", (2,))],
    traced=SimpleNamespace(at=SimpleNamespace(count=len(INPUTS))),
)
OPENER = SimpleNamespace(case=CASE, open=lambda opening: OP)
WRONG = OpVerdict(OpPlace("a", "Op"), Status.MISMATCHED, evidence="it is off")


def pairs(count, status=Status.MISMATCHED):
    return Findings(
        tuple(make_pair(f"dy/dx{number}", "y", f"x{number}", status, elements=4) for number in range(count))
    )


@pytest.fixture
def found(monkeypatch):
    """Stand in for what looks for the op; tests set what it does."""
    fake = SimpleNamespace(blame=Blame((WRONG, WRONG), agrees=False), error=None, asked=[])

    def look(output, numbers, samples, opener):
        fake.asked.append((output, tuple(numbers)))
        if fake.error is not None:
            raise fake.error
        return SimpleNamespace(blame=fake.blame)

    monkeypatch.setattr(blaming, "blame_path", look)
    return fake


def lines(findings, case=CASE, spent=0.0):
    opener = SimpleNamespace(**{**vars(OPENER), "case": case})
    explain_mismatches(OpenCase(opener, [0], findings, spent, evaluated=0))
    return [pair.cause.diagnosis for pair in findings.pairs]


def test_what_is_not_wrong_is_one_op_or_has_a_reference_is_not_looked_at(found):
    for status in (Status.PASSED, Status.INCONCLUSIVE, Status.EXPECTED_MISMATCH):
        assert lines(pairs(1, status)) == [()]
    reference = Reference(FunctionRef("a:c"))
    for changes in ({"binding": "defun"}, {"forward": None}, {"reference": reference}):
        assert lines(pairs(1), altered(CASE, **changes)) == [()]
    assert found.asked == []


@pytest.mark.parametrize(
    "error", [CaseFailedError("gradient", "no"), ZeroDivisionError("no"), MemoryError("no")]
)
def test_what_fails_leaves_the_verdict_as_it_is(found, error):
    found.error = error
    findings = pairs(1)
    lines(findings)
    assert findings.pairs[0].status is Status.MISMATCHED
    assert findings.pairs[0].cause.diagnosis[0].startswith("blame: no op can be named: ")
    assert findings.pairs[0].cause.diagnosis[0].endswith("no")


def test_of_many_pairs_the_first_are_looked_at(found):
    told = lines(pairs(6))
    assert [bool(one) for one in told] == [True] * MOST_PAIRS + [False] * (6 - MOST_PAIRS)
    assert len(found.asked) == MOST_PAIRS


COMMAND = "gradcheck blame 'a b.yaml' --op f --case wide --pair dy/dx0 --seed 7"


def test_a_case_that_took_long_is_left_alone(found):
    assert lines(pairs(1), spent=LONG + 1) == [(f"blame: not looked for, since this takes long: {COMMAND}",)]
    assert found.asked == []
