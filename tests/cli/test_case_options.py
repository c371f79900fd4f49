import pytest

from gradcheck_cli.cli.options.case_options import CaseOptions
from gradcheck_cli.running.run_loop import reproduce
from gradcheck_cli.spec.case import Power
from gradcheck_cli.spec.load import load_cases, load_mapping

CASES = load_mapping({"forward": "tensorflow:square", "inputs": {"x": {"shape": [3]}}})


@pytest.fixture
def real(engine):
    engine.cases = list(CASES)
    return engine


def asked(engine):
    return engine.asked["cases"][0]


@pytest.mark.parametrize(
    ("value", "size", "miss"), [("0.05:0.02", 0.05, 0.02), ("1.5:0.01", 1.5, 0.01), ("1e-3:1e-4", 1e-3, 1e-4)]
)
def test_the_power_of_probes_goes_to_the_cases(invoke, real, value, size, miss):
    assert invoke("run", "--power", value).code == 0
    assert asked(real).judging.power == Power(pytest.approx(size), miss)
    assert not asked(real).judging.full_only


def test_requiring_the_whole_goes_to_the_cases(invoke, real):
    assert invoke("run", "--require", "full").code == 0
    assert asked(real).judging.full_only
    assert asked(real).judging.power == Power()


@pytest.mark.parametrize(
    "value", ["1", "0.01:", "0:0.1", "0.01:0", "0.01:1", "nan:0.1", "-1:0.1", "0.1:0.1:0.1", "5%:0.1"]
)
def test_a_power_that_is_none(invoke, real, value):
    result = invoke("run", "--power", value)
    assert result.code == 2
    assert "must be SIZE:PROBABILITY, such as 0.01:0.05" in result.err
    assert f"but got '{value}'" in " ".join(result.err.split())


def test_the_command_line_of_a_file_has_them(tmp_path):
    file = tmp_path / "op.yaml"
    file.write_text("forward: tensorflow:square\ninputs: {x: {shape: [3]}}\n", encoding="utf-8")
    (changed,) = CaseOptions(power=Power(0.05, 0.02), require="full").apply_to(load_cases([file]))
    assert reproduce(changed).endswith(" --require full --power 0.05:0.02")
