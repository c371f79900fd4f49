"""A bounded number of spoilt reports, locks, caches and command lines; the many are for `spoilt_files.py`."""

import json

import pytest

from gradcheck_cli.reporting.exchange.json_report import to_json
from gradcheck_cli.results import Status
from tests.acceptance.spoilt_files import Campaign, call, sample

pytestmark = pytest.mark.once


@pytest.fixture
def campaign(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Campaign(tmp_path)


@pytest.mark.parametrize(
    ("what", "count"), [("reports", 80), ("locks", 80), ("caches", 40), ("commands", 60)]
)
def test_none_ends_in_a_traceback_or_an_exit_code_of_its_own(campaign, what, count):
    getattr(campaign, what)(count, seed=100_000)
    assert campaign.wrong == []
    assert sum(campaign.became[what.removesuffix("s")].values()) == count


def test_a_campaign_can_fail(campaign):
    campaign.note("report", 1, (0, ""), {1, 2})
    campaign.note("report", 2, (2, "Traceback (most recent call last)"), {1, 2})
    assert len(campaign.wrong) == 2


@pytest.fixture
def merged(campaign):
    """Return a function that changes a report of a green run, and merges it."""

    def merge(change):
        content = json.loads(to_json(sample(Status.PASSED)))
        content["cases"] = content["cases"][2:]
        content["shard"] = None
        content["baseline"] = []
        summary = {"specs": 1, "cases": 1, "pairs": 1, "passed": 1, "error": 0}
        content["summary"] |= summary
        content["exit_code"] = 0
        change(content)
        file = campaign.folder / "one.json"
        file.write_text(json.dumps(content))
        return call("merge", file)

    return merge


FAULTS = [
    (lambda report: report.update(cases=""), 'cases must be a list, but is ""'),
    (lambda report: report["cases"][0].update(pairs=[]), "it has no pairs"),
    (
        lambda report: report["cases"][0]["pairs"][0].update(status="mismatched"),
        "something of it is mismatched",
    ),
    (lambda report: report.update(cases=[]), "summary says otherwise than the cases do"),
    (lambda report: report.update(exit_code=3), "exit_code says otherwise than the cases do"),
    (lambda report: report["cases"][0].update(op=[]), "cases[0].op must be text, but is []"),
    (lambda report: report.update(duration_s=10**400), "duration_s must be a number, but is 1000"),
    (lambda report: report.update(duration_s=float("inf")), "Infinity is no JSON"),
    (lambda report: report["cases"][0].update(samples=True), "cases[0].samples must be a whole number"),
    (lambda report: report["cases"][0].update(status="fine"), "cases[0].status must be one of passed"),
    (lambda report: report["cases"][0]["pairs"][0].pop("kinks"), "cases[0].pairs[0] lacks 'kinks'"),
]


@pytest.mark.parametrize(("change", "words"), FAULTS, ids=[words for _, words in FAULTS])
def test_a_spoilt_report_is_bad_usage_and_names_the_place(merged, change, words):
    code, text = merged(change)
    assert (code, words in text) == (2, True), text
