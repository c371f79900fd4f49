"""The HTML page in a real Chromium, where there is one: what the script does, and what overflows."""

import os
import shutil
from pathlib import Path

import pytest

from gradcheck_cli.features.page.page import to_html
from gradcheck_cli.results import Status
from tests.reporting.figures import tanh_figure
from tests.support.flat_results import altered

BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright, and a Chromium")
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        BROWSER is None, reason="there is no chromium on the PATH, nor one named by $CHROMIUM"
    ),
]
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
TABLET = {"width": 768, "height": 1024}


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
    # What is widest of each: a file, a mode, a dtype, a label, a status, and a number.
    long = altered(pair, label="dencoder_output[0]/dembedding_kernel_0", status=Status.EXPECTED_MISMATCH)
    cases[2:2] = [
        altered(
            huber,
            op="widest",
            spec="specs/gradients/of_a_folder/wrong_values_of_an_operation.yaml:12",
            mode="saved_model",
            dtype="complex128",
            checks=(),
            warnings=(),
            pairs=(altered(long, connected=False), altered(long, max_abs_error=9.999e-123, allowed=1e-130)),
        )
    ]
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


def visible(opened, selector="#table tbody tr"):
    return opened.locator(f"{selector}:not([hidden])").count()


def test_the_table_is_filtered_by_words_and_status(page):
    opened = page()
    assert visible(opened) == 66
    opened.get_by_label("Filter", exact=True).fill("HUBER dy/dx")
    assert visible(opened) == 1
    assert opened.locator("output").text_content() == "1 of 66 rows"
    opened.get_by_label("Filter", exact=True).fill("")
    opened.get_by_label("Status").select_option("passed")
    assert visible(opened) == 62
    assert opened.faults == []


def test_the_worst_comes_first_and_numbers_are_sorted_the_largest_first(page):
    opened = page()
    assert opened.locator("#table thead th:visible").all_inner_texts()[:5] == [
        "status",
        "op",
        "pair",
        "error",
        "ratio",
    ]
    rows = opened.locator("#table tbody tr")
    assert rows.first.inner_text().startswith("mismatched")
    heads = opened.locator("#table thead th")
    sign = "one => getComputedStyle(one.querySelector('button'), '::after').content"
    assert set(heads.evaluate_all(f"all => all.map({sign})")) == {'" ↕" / ""'}
    ratio = opened.get_by_role("button", name="ratio")
    ratios = rows.locator("td:nth-child(5)")
    ratio.click()
    assert heads.nth(4).get_attribute("aria-sort") == "descending"
    assert heads.nth(4).evaluate(sign) == '" ▼" / ""'
    down = ratios.all_inner_texts()
    ratio.click()
    up = ratios.all_inner_texts()
    # What has no number comes last, whichever way.
    is_number = [[text not in {"", "-"} for text in texts] for texts in (down, up)]
    assert is_number[0] == is_number[1] == sorted(is_number[0], reverse=True)
    assert float(down[0]) == max(float(text) for text in down if text not in {"", "-"}) != float(up[0])
    opened.get_by_role("button", name="op", exact=True).click()
    assert opened.locator("#table tbody tr th").first.text_content().startswith("an_operation")
    opened.get_by_role("button", name="status").click()
    assert rows.first.inner_text().startswith("mismatched")
    assert opened.faults == []


PAPER = {"width": 718, "height": 1000}  # A4 without its margins
# Numbers that a box cuts, or that lie beyond one that they are in; and whatever has a scroll bar of its own.
OUTSIDE = """() => [...document.querySelectorAll('.number')].filter((one) => {
    if (!one.checkVisibility()) return false;
    const right = one.getBoundingClientRect().right;
    if (one.scrollWidth > one.clientWidth || right > innerWidth) return true;
    for (let box = one.parentElement; box; box = box.parentElement)
        if (right > box.getBoundingClientRect().right + 0.5) return true;
    return false;
}).map((one) => one.outerHTML)"""
SCROLLS = """() => [...document.querySelectorAll('main *')].filter((one) =>
    one.scrollHeight > one.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(one).overflowY)
    && one.clientHeight).map((one) => one.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize(
    ("size", "media"),
    [(PHONE, "screen"), (TABLET, "screen"), (DESKTOP, "screen"), (PAPER, "print")],
    ids=["phone", "tablet", "desktop", "paper"],
)
def test_no_column_of_numbers_is_outside_of_its_box(page, size, media):
    opened = page(size)
    opened.emulate_media(media=media)
    opened.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert opened.locator(".number:visible").count() > 100
    assert opened.evaluate(OUTSIDE) == []
    assert opened.evaluate(SCROLLS) == []
    assert opened.evaluate("document.documentElement.scrollWidth") == size["width"]
    badge = opened.locator("#table .badge.mismatched").first.bounding_box()
    assert 0 <= badge["x"] < badge["x"] + badge["width"] < size["width"] / 2
