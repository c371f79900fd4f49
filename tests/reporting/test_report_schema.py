"""The JSON Schema of the report: what is written is valid, and what isn't a report isn't."""

from __future__ import annotations

import json

import jsonschema
import pytest

from gradcheck_cli.features.schema.json_schema import report_schema
from gradcheck_cli.gate import BaselineFinding, Change, Fingerprint, Projection, Shard, Tolerance
from gradcheck_cli.reporting.exchange.json_report import to_json
from gradcheck_cli.results import Printed, UndifferentiatedOutput
from tests.reporting.figures import tanh_figure
from tests.support.flat_results import altered

pytestmark = pytest.mark.once


@pytest.fixture
def written(report):
    """Return a report with all that one can hold, as JSON."""
    pair = altered(
        report.cases[1].pairs[0],
        figure=tanh_figure(),
        fingerprint=Fingerprint((Projection(1.0, 1e-8),), (Projection(float("nan"), 0.0),)),
        tolerance=Tolerance(1e-6, 1e-10),
        worst=altered(report.cases[1].pairs[0].numbers.worst, analytic=1 + 2j, numeric=float("inf")),
    )
    case = altered(
        report.cases[1],
        pairs=(pair,),
        output=Printed(("printed",)),
        not_differentiated=(UndifferentiatedOutput("n", "int32"),),
    )
    found = BaselineFinding("huber", "wide", "float32", "graph", "dy/dx", Change.DRIFTED, "x", "h.yaml:1")
    full = altered(
        report,
        cases=(report.cases[0], case, report.cases[2]),
        baseline=(found,),
        shard=Shard(1, 2, (("huber", "wide", "float32"),)),
    )
    return json.loads(to_json(full))


def test_what_is_written_is_valid(written):
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(written)


def test_every_field_that_is_written_is_in_the_schema(written):
    schema = report_schema()
    of = schema["$defs"]
    case = written["cases"][1]
    for found, known in (
        (written, schema),
        (case, of["CaseResult"]),
        (case["pairs"][0], of["PairResult"]),
        (case["pairs"][0]["worst"], of["WorstElement"]),
        (case["pairs"][0]["figure"], of["Figure"]),
        (case["checks"][0], of["CheckResult"]),
        (written["cases"][2]["error"], of["CaseError"]),
        (written["baseline"][0], of["BaselineFinding"]),
    ):
        assert set(found) - set(known["properties"]) - {"numeric_dtype"} == set()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda report: report.pop("cases"),
        lambda report: report.update(schema_version=2),
        lambda report: report["cases"][0].update(status="fine"),
        lambda report: report["cases"][1]["pairs"][0].update(allowed="a lot"),
        lambda report: report["cases"][1]["checks"][0].update(code="linearity"),
        lambda report: report["cases"][1]["pairs"][0]["worst"].update(analytic=[1, 2, 3]),
    ],
)
def test_what_is_no_report_is_not(written, spoil):
    spoil(written)
    assert not jsonschema.Draft202012Validator(report_schema()).is_valid(written)
