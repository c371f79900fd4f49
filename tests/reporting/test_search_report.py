"""What a search tried and found, as each report shows it."""

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from gradcheck_cli.features.exchange.annotations import to_sarif
from gradcheck_cli.features.exchange.junit import to_junit
from gradcheck_cli.features.exchange.markdown import to_markdown
from gradcheck_cli.features.page.page import to_html
from gradcheck_cli.results import Counterexample, SearchResult
from tests.support.flat_results import altered

POINT = Counterexample((("x", "[4.0, 0.0]"), ("w", "[[1.0]]")))
TRIED = "search: 1,024 points in 3 s, 17 judged, sides 3 of 4, largest disagreement 5.0e-01"
NOTHING = SearchResult(3.2, 1024, 17, 3, 4, 0.5)
REFUSED = SearchResult(0.0, 0, 0, refused="all values of its inputs are written out")


def junit(report, _root):
    suite = ET.fromstring(to_junit(report)).find("testsuite")  # noqa: S314 (our own text)
    return "\n".join(f"{one.get('name')} {''.join(one.itertext())}" for one in suite)


def sarif(report, root):
    results = json.loads(to_sarif(report, root))["runs"][0]["results"]
    return "\n".join(one["message"]["text"] for one in results)


def markdown(report, root):
    return to_markdown(report, root).replace("\\", "")


def page(report, root):
    return to_html(report, root)


@pytest.mark.parametrize("form", [junit, sarif, markdown, page])
def test_a_counterexample_stands_with_what_is_wrong(report, mismatched, form):
    case = altered(mismatched, search=altered(NOTHING, found=POINT))
    text = form(altered(report, cases=(case,)), Path.cwd())
    for told in (f"{TRIED}: found", "x = [4.0, 0.0]", "w = [[1.0]]"):
        assert told in text


@pytest.mark.parametrize("form", [junit, markdown, page])
@pytest.mark.parametrize(
    ("search", "told"),
    [
        (NOTHING, f"{TRIED}: nothing found"),
        (REFUSED, "this case isn't searched: all values of its inputs are written out"),
    ],
)
def test_a_search_that_found_nothing_says_what_it_tried(report, passed, form, search, told):
    text = form(altered(report, cases=(altered(passed, search=search),)), Path.cwd())
    assert told in text.replace("&#39;", "'")


def test_a_case_that_is_not_searched_fails_nothing(report, passed):
    case = altered(passed, search=REFUSED)
    assert altered(report, cases=(case,), strict_precision=True).exit_code == 0
