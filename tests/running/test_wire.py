"""Cases and results come back from JSON as they were, or not at all."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from gradcheck_cli.features.cluster import wire
from gradcheck_cli.gate import Fingerprint, Projection
from gradcheck_cli.results import (
    CaseError,
    CaseResult,
    CheckResult,
    Mutant,
    PairResult,
    Status,
    WorstElement,
)
from gradcheck_cli.spec.case import Case
from gradcheck_cli.spec.load import load_cases

SPECS = Path(__file__).parents[2] / "specs"
WORST = WorstElement((1, 0), (2,), 1 + 2j, float("nan"), 0.1, input_part="re")
RESULT = CaseResult(
    op="op",
    case="default",
    spec="a.yaml:1",
    mode="graph",
    dtype="complex128",
    status=Status.MISMATCHED,
    duration_s=0.1,
    reproduce="gradcheck run 'a.yaml'",
    error=CaseError("forward", "ñ\n\x1b", ("a.py:1",)),
    checks=(CheckResult("linearity", Status.PASSED),),
    pairs=(
        PairResult(
            "dy/dx",
            "y",
            "x",
            Status.MISMATCHED,
            max_abs_error=float("inf"),
            max_rel_error=1 / 3,
            worst=WORST,
            fingerprint=Fingerprint((Projection(0.1, 1e-17),), ()),
        ),
    ),
    not_differentiated=(("n", "int32"),),
    gradients_seen={"Sin": 2, "~": 1},
    mutants=(Mutant("dy/dx", "factor", "caught"),),
)


@pytest.mark.parametrize("folder", ["seeds", "structures", "layers"])
def test_cases_come_back_as_they_were(folder):
    cases = load_cases([str(SPECS / folder)])
    again = wire.loads(wire.dumps(list(cases)))
    assert again == list(cases)
    assert [repr(case) for case in again] == [repr(case) for case in cases]  # types too: (1,) isn't [1]


def test_values_that_json_has_no_word_for_come_back():
    (case, *_) = load_cases([str(SPECS / "seeds" / "chain.yaml")])
    odd = {"z": 1 - 2j, "inf": float("-inf"), "mapping": {1: "a", "~": (1, [2.5])}, "zero": -0.0, "no": None}
    case = replace(case, attrs=odd, checks_off=frozenset({"a"}))  # of two, a set may print either first
    assert repr(wire.loads(wire.dumps(case))) == repr(case)


def test_results_come_back_as_they_were():
    again = wire.loads(wire.dumps([RESULT]))
    assert repr(again) == repr([RESULT])
    assert again[0].status is Status.MISMATCHED


def test_scalars_of_numpys_come_back_as_pythons():
    text = wire.dumps([np.float64(0.1), np.float32(0.5), np.int64(3), np.bool_(1), np.complex128(1j)])
    assert repr(wire.loads(text)) == "[0.1, 0.5, 3, True, 1j]"


def test_what_a_result_never_holds_is_no_json():
    with pytest.raises(TypeError, match=r"holds a PosixPath, which isn't sent"):
        wire.dumps(replace(RESULT, reason=Path("a")))


def test_a_field_that_only_another_version_has_is_no_case():
    plain = json.loads(wire.dumps(RESULT))
    plain["is"]["colour"] = "red"
    with pytest.raises(wire.WireError, match=r"results\.CaseResult is another: .*colour"):
        wire.loads(json.dumps(plain))


def test_a_field_that_the_other_version_lacks_has_its_default():
    plain = json.loads(wire.dumps(RESULT))
    del plain["is"]["mutants"]
    assert repr(wire.loads(json.dumps(plain))) == repr(
        replace(RESULT, mutants=())
    )  # NaN is no equal of its own
    del plain["is"]["op"]
    with pytest.raises(wire.WireError, match="op"):
        wire.loads(json.dumps(plain))


@pytest.mark.parametrize("kind", ["results.Colour", "os.system", "spec.case.field"])
def test_a_type_that_is_none_of_them_is_refused(kind):
    with pytest.raises(wire.WireError, match=f"knows no {kind}"):
        wire.loads(json.dumps({"~": kind, "is": {}}))


def test_every_field_of_a_case_is_sent():
    (case, *_) = load_cases([str(SPECS / "seeds" / "chain.yaml")])
    assert json.loads(wire.dumps(case))["is"].keys() == {one.name for one in fields(Case)}
