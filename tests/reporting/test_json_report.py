"""The JSON report: a contract's fields, valid under its schema, read back as what was written, or refused."""

import json

import jsonschema
import pytest

from gradcheck_cli.errors import UsageError
from gradcheck_cli.features.schema.json_schema import report_schema
from gradcheck_cli.gate import (
    BaselineFinding,
    Branch,
    Change,
    CoverageStatus,
    Fingerprint,
    GradientCoverage,
    GradientRun,
    Projection,
    Shard,
    Tolerance,
    WrittenGradient,
)
from gradcheck_cli.reporting.exchange.json_report import read_report, to_json
from gradcheck_cli.results import (
    Counterexample,
    Printed,
    SearchResult,
    Status,
    UndifferentiatedOutput,
    WorstElement,
)
from tests.reporting.figures import tanh_figure
from tests.support.flat_results import altered

# The contract of the JSON report: these fields must be there, others may be.
TOP = {
    "schema_version", "gradcheck_version", "tensorflow_version", "python_version", "seed", "exit_code",
    "summary", "cases",
}  # fmt: skip
CASE = {
    "op", "case", "spec", "mode", "dtype", "status", "duration_s", "error", "output", "reproduce", "checks",
    "pairs",
}  # fmt: skip
PAIR = {
    "label", "output", "input", "status", "connected", "method", "reference_dtype", "evaluations",
    "miss_probability", "max_abs_error", "max_rel_error", "allowed", "uncertainty", "kinks", "elements",
    "wrong_elements", "worst", "diagnosis",
}  # fmt: skip


@pytest.fixture
def full(report, mismatched):
    """A report with all that one can hold, of its first case."""
    pair = altered(
        mismatched.pairs[0],
        worst=WorstElement((0,), (1,), complex(float("nan"), 2), float("-inf"), float("inf"), "re", "im"),
        max_abs_error=float("inf"),
        max_rel_error=float("nan"),
        miss_probability=0.25,
        tolerance=Tolerance(1e-4, 0.0, 1e-6),
        fingerprint=Fingerprint((Projection(1.0, 1e-9),), (Projection(float("inf"), 0.0),)),
        figure=tanh_figure(),
    )
    case = altered(
        mismatched,
        op="größe",
        pairs=(pair,),
        output=Printed(("printed",), "a/b"),
        source="ops.py:3",
        checks_off=("linearity",),
        not_differentiated=(UndifferentiatedOutput("y.places", "int32"),),
        samples=2,
        reason="why",
        branches=(Branch("x > 3.5", "ops.py:14", "forward", ("true", "false"), ("false",)),),
        custom_gradients=(GradientRun("m:f", ("m.py:4",), ("m.py:3",), ("dy/dx",)),),
        sides_unknown="why",
        search=SearchResult(3.2, 1024, 17, found=Counterexample((("x", "[4.0]"),))),
    )
    found = BaselineFinding(
        "a", "default", "float64", "graph", "dy/dx", Change.DRIFTED, "message", "a.yaml:1"
    )
    shard = Shard(1, 2, (("a", "b", "float64"),))
    written_one = WrittenGradient("m:f", "custom_gradient", "m.py", 4, CoverageStatus.MISSING, (), "no case")
    coverage = GradientCoverage(("m",), (written_one,), 80.0)
    more = {
        "baseline": (found,),
        "unchecked": ("x",),
        "strict": True,
        "notices": ("n",),
        "coverage": coverage,
    }
    return altered(report, cases=(case, *report.cases), shard=shard, **more)


def refuse(word):
    raise AssertionError(f"{word} is no JSON")


def written(report):
    return json.loads(to_json(report), parse_constant=refuse)


def test_the_contracts_fields_and_values_are_there(report, full):
    content = written(report)
    assert set(content) >= TOP
    assert set(content["summary"]) == {"specs", "cases", "pairs", *map(str, Status), "failed_checks"}
    assert all(set(case) >= CASE for case in content["cases"])
    assert all(set(pair) >= PAIR for case in content["cases"] for pair in case["pairs"])
    _, case, broken = content["cases"]
    assert (content["schema_version"], content["seed"], content["exit_code"]) == (1, 0, 1)
    assert (case["op"], case["case"], case["spec"]) == ("huber", "wide", "specs/huber.yaml:12")
    assert (case["dtype"], case["numeric_dtype"], case["error"]) == ("float32", "float64", None)
    assert case["checks"] == [
        {"name": "linearity", "status": "mismatched", "message": "vjp(2 u) isn't 2 vjp(u)", "code": "GC102"}
    ]
    assert broken["error"]["kind"] == "import"
    assert broken["error"]["traceback"] == ['File "ops.py", line 3, in <module>', "  import numpi"]
    (pair,) = written(full)["cases"][0]["pairs"]
    assert (pair["max_abs_error"], pair["max_rel_error"]) == ("inf", "nan")
    assert (pair["worst"]["analytic"], pair["worst"]["numeric"]) == (["nan", 2.0], "-inf")
    assert (pair["worst"]["output_index"], pair["worst"]["input_part"]) == ([0], "im")
    assert '"op": "größe"' in to_json(full)
    assert to_json(full).endswith("}\n")


def test_what_is_written_is_valid_and_every_field_of_it_is_in_the_schema(full):
    schema, content = report_schema(), written(full)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(content)
    of, case = schema["$defs"], content["cases"][0]
    for found, known in (
        (content, schema),
        (case, of["CaseResult"]),
        (case["pairs"][0], of["PairResult"]),
        (case["pairs"][0]["worst"], of["WorstElement"]),
        (case["pairs"][0]["figure"], of["Figure"]),
        (case["checks"][0], of["CheckResult"]),
        (content["cases"][3]["error"], of["CaseError"]),
        (content["baseline"][0], of["BaselineFinding"]),
    ):
        assert set(found) - set(known["properties"]) - {"numeric_dtype"} == set()


def test_what_is_read_is_what_was_written(full, tmp_path):
    """What pictures are drawn from, too, so that a page can be made of a JSON report."""
    file = tmp_path / "report.json"
    file.write_text(to_json(full))
    again = read_report(file)
    assert to_json(again) == to_json(full)
    assert again.cases[0].pairs[0].fingerprint == full.cases[0].pairs[0].fingerprint
    assert again.cases[0].pairs[0].figure == full.cases[0].pairs[0].figure
    assert again.cases[0].seen == full.cases[0].seen
    assert (again.cases[0].search, again.coverage) == (full.cases[0].search, full.coverage)
    assert (again.shard, again.baseline, again.exit_code) == (full.shard, full.baseline, full.exit_code)


def first_pair(report):
    return report["cases"][0]["pairs"][0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda report: report.pop("cases"),
        lambda report: report.update(schema_version=2),
        lambda report: report["cases"][0].update(status="fine"),
        lambda report: first_pair(report).update(allowed="a lot"),
        lambda report: first_pair(report)["worst"].update(analytic=[1, 2, 3]),
    ],
)
def test_what_is_no_report_is_not_valid_and_is_refused(full, tmp_path, spoil):
    content = written(full)
    spoil(content)
    assert not jsonschema.Draft202012Validator(report_schema()).is_valid(content)
    file = tmp_path / "report.json"
    file.write_text(json.dumps(content))
    with pytest.raises(UsageError):
        read_report(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "can't be read: No such file"),
        ("{", "isn't JSON"),
        ("[" * 100_000, "isn't JSON"),
        ("[]", "isn't a report of gradcheck's; write one with --report json=FILE."),
        ('{"schema_version": 9, "cases": []}', "must have schema_version 1, but has 9."),
        ('{"schema_version": 1, "cases": 3}', "lacks 'gradcheck_version'"),
    ],
)
def test_what_is_no_report_says_why(tmp_path, text, message):
    file = tmp_path / "report.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_report(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


def test_any_part_that_is_missing_is_said(full, tmp_path):
    file = tmp_path / "report.json"
    for key in first_pair(written(full)).keys() - {"worst_ratio", "relative_error", "code"}:  # computed
        broken = written(full)
        del first_pair(broken)[key]
        file.write_text(json.dumps(broken))
        with pytest.raises(UsageError, match=f"lacks '{key}'"):
            read_report(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda figure: figure["map"].update(verdicts=["."]), "map.verdicts must have 6 x 6 cells"),
        (lambda figure: figure["map"]["share"][2].append(1.0), "map.share must have 6 x 6 cells"),
        (lambda figure: figure["map"].update(rows=[]), "map.analytic must have 0 x 6 cells"),
        (lambda figure: figure["ladder"]["above"].pop(), "ladder.above must have a number for each of 24"),
        (lambda figure: figure["ladder"]["steps"].__setitem__(0, 0), "ladder.steps must be larger than 0"),
    ],
)
def test_a_figure_that_contradicts_itself_is_refused_with_its_place(full, tmp_path, change, message):
    content = written(full)
    change(first_pair(content)["figure"])
    file = tmp_path / "report.json"
    file.write_text(json.dumps(content))
    with pytest.raises(UsageError, match=rf"figure\.{message}"):
        read_report(file)
