"""`trace` and `blame` by what they're told: options, exit codes, which case is meant."""

import json
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from gradcheck_cli.checking.ops.operation import OpPass, OpPlace
from gradcheck_cli.features.blame.backward_pass import PassTrace, summarise_pass, summarise_tensor
from gradcheck_cli.features.blame.path_blame import Blame, OpVerdict
from gradcheck_cli.results import Status

SQUARE = OpPass(OpPlace("square", "Square"), ((0, np.array(1.0)),), ((0, np.array(32.0)),))
ASKED = {}


@pytest.fixture
def backward(engine, monkeypatch):
    """Stand in for what walks the graph; tests set what it finds."""
    fake = SimpleNamespace(
        passes=(PassTrace("y", ("x",), summarise_pass([SQUARE]), (summarise_tensor(np.array(32.0)),)),),
        blames=(),
        error=None,
        during=lambda: None,
        engine=engine,
    )

    def answer(name):
        def function(case, label, *rest):
            ASKED.update(case=case, label=label, types=rest[0] if rest else None)
            fake.during()
            if fake.error is not None:
                raise fake.error
            return getattr(fake, name)

        return function

    module = ModuleType("backward")
    module.trace_case, module.blame_case = answer("passes"), answer("blames")
    monkeypatch.setitem(sys.modules, "gradcheck_cli.features.blame.blaming", module)
    return fake


def of(status, agrees):
    op = OpVerdict(OpPlace("a", "Op"), status, evidence="it is off" * (status is Status.MISMATCHED))
    return SimpleNamespace(output="y", inputs=("x",), sample=0, blame=Blame((op,), agrees))


RIGHT, WRONG, UNSURE = of(Status.PASSED, True), of(Status.MISMATCHED, False), of(Status.INCONCLUSIVE, False)  # noqa: FBT003


def test_json_stays_json_when_the_forward_prints(invoke, backward):
    backward.during = lambda: sys.stdout.write("printed by a forward\n")
    result = invoke("trace", "a.yaml", "--format", "json")
    assert json.loads(result.out)["passes"][0]["ops"][0]["name"] == "square"
    assert result.err == "printed by a forward\n"
    backward.blames = (WRONG,)
    result = invoke("blame", "a.yaml", "--format", "json")
    assert json.loads(result.out)["exit_code"] == result.code == 1


@pytest.mark.parametrize(
    ("found", "code"),
    [([RIGHT], 0), ([WRONG], 1), ([UNSURE], 3), ([RIGHT, UNSURE], 3), ([UNSURE, WRONG], 1), ([RIGHT] * 2, 0)],
    ids=["right", "wrong", "unsure", "right_unsure", "unsure_wrong", "both_right"],
)
def test_blames_exit_code(invoke, backward, found, code):
    backward.blames = tuple(found)
    result = invoke("blame", "a.yaml")
    assert result.code == code
    assert result.out.count("  blame: ") == len(found)


@pytest.mark.parametrize("command", ["trace", "blame"])
def test_which_case_is_meant(invoke, backward, a_case, command):
    backward.blames = (RIGHT,)
    backward.engine.cases = [a_case("square"), a_case("square", "wide"), a_case("cube")]
    every = invoke(command, "a.yaml")
    assert (every.code, every.err) == (0, "")
    assert [every.out.count(f"{op}.yaml · {op} ") for op in ("square", "cube")] == [2, 1]
    assert invoke(command, "a.yaml", "--op", "cube").out.count(".yaml · ") == 1
    assert ASKED["case"].op == "cube"
    result = invoke(command, "a.yaml", "--op", "cub")
    assert (result.code, result.err) == (5, "no op is named 'cub'. Did you mean 'cube'?\n")
    result = invoke(command, "a.yaml", "--op", "cube", "--case", "wide")
    assert (result.code, result.err) == (5, "no case is named 'wide'. There are: default.\n")
    assert invoke(command, "a.yaml", "--case", "wide").err == ""
    assert ASKED["case"].name == "wide"
    result = invoke(command, "a.yaml", "--case", "wid")
    assert (result.code, result.err) == (5, "no case is named 'wid'. Did you mean 'wide'?\n")
    result = invoke(command, "a.yaml", "--pair", "dy/dz")
    assert (result.code, result.err) == (2, "no pair is labelled 'dy/dz'. Did you mean 'dy/dx'?\n")
