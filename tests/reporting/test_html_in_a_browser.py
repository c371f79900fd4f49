"""The HTML page in a real Chromium, where there is one: what the script does, and what overflows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from figures import tanh_figure
from flat_results import altered

from gradcheck_cli.features.page.page import to_html

BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright, and a Chromium")
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        BROWSER is None, reason="there is no chromium on the PATH, nor one named by $CHROMIUM"
    ),
]
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, report, tmp_path):
    """Return a function that opens the page of a report of several ops, and its faults."""
    huber = report.cases[1]
    pair = altered(huber.pairs[0], figure=tanh_figure(), kinks=1)
    cases = [report.cases[0], altered(huber, pairs=(pair,)), report.cases[2]]
    cases += [altered(report.cases[0], op=f"an_operation_with_a_long_name_{number}") for number in range(30)]
    file = tmp_path / "report.html"
    file.write_text(to_html(altered(report, cases=tuple(cases)), Path()), encoding="utf-8")
    contexts = []

    def open_it(size=DESKTOP, fragment="", **options):
        contexts.append(browser.new_context(viewport=size, **options))
        opened = contexts[-1].new_page()
        opened.faults = []
        opened.on("pageerror", lambda error: opened.faults.append(str(error)))
        opened.on("console", lambda said: opened.faults.append(said.text) if said.type == "error" else None)
        opened.goto(f"{file.as_uri()}{fragment}")
        return opened

    yield open_it
    for context in contexts:
        context.close()


def visible(opened):
    return opened.locator("#table tbody tr:not([hidden])").count()


def test_the_table_is_filtered_by_words_and_status(page):
    opened = page()
    assert visible(opened) == 63
    opened.get_by_label("Filter", exact=True).fill("HUBER dy/dx")
    assert visible(opened) == 1
    assert opened.locator("output").text_content() == "1 of 64 rows"
    opened.get_by_label("Filter", exact=True).fill("")
    opened.get_by_label("Status").select_option("passed")
    assert visible(opened) == 62
    assert opened.faults == []


def test_numbers_are_sorted_as_numbers_and_back(page):
    opened = page()
    ratio = opened.get_by_role("button", name="ratio")
    ratio.click()
    ratio.click()
    assert opened.locator("#table tbody tr td").first.text_content() == "dy/dx"
    assert opened.locator("#table thead th").last.get_attribute("aria-sort") == "descending"
    opened.get_by_role("button", name="op", exact=True).click()
    assert opened.locator("#table tbody tr th").first.text_content().startswith("an_operation")


def test_of_thousands_the_first_are_laid_out_until_all_are_asked_for(page):
    opened = page()
    opened.evaluate("""() => {
        const body = document.querySelector('#table tbody');
        const row = body.rows[5].outerHTML;
        body.insertAdjacentHTML('beforeend', row.repeat(600));
        document.body.append(Object.assign(document.createElement('script'),
            {textContent: document.scripts[0].textContent}));
    }""")
    assert visible(opened) == 500
    assert opened.locator("output").text_content() == "664 rows, the first 500 shown"
    opened.get_by_role("button", name="Show all").click()
    assert visible(opened) == 663


def test_a_link_opens_its_details(page):
    opened = page()
    opened.locator("details").first.evaluate("one => one.open = false")
    opened.locator("#table a").first.click()
    assert opened.locator("details").first.evaluate("one => one.open")


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_what_scrolls_is_reached_by_keyboard(page, size):
    opened = page(size)
    scrolling = opened.evaluate("""() => [...document.querySelectorAll('body *')].filter(
        (one) => one.scrollWidth > one.clientWidth && /auto|scroll/.test(getComputedStyle(one).overflowX)
            && one.tabIndex < 0).map((one) => one.outerHTML.slice(0, 80))""")
    assert scrolling == []


def test_the_graph_of_ops_is_as_large_as_its_drawing(page):
    graph = page(PHONE).locator(".graph svg")
    assert graph.get_attribute("aria-label").startswith("graph of the ops from x to y; to blame: Tanh Tanh")
    box = graph.bounding_box()
    inside = [part.bounding_box() for part in graph.locator("rect, text").all()]
    assert len(inside) > 4
    assert all(
        box["y"] <= one["y"] and one["y"] + one["height"] <= box["y"] + box["height"] for one in inside
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_a_phone(page, scheme):
    opened = page(PHONE, color_scheme=scheme)
    assert opened.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert opened.faults == []


def test_it_asks_nobody_for_anything(page):
    opened = page()
    loaded = opened.evaluate("performance.getEntriesByType('resource').map(one => one.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_dark_and_light_differ(page):
    colours = {
        page(color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    }
    assert len(colours) == 2
