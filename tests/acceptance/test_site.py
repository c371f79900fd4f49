"""The documentation builds as a site, without a warning, and its pages need nothing from elsewhere."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from tests.support.processes import ROOT

pytestmark = pytest.mark.once

PAGES = ROOT / "docs"


def build(root):
    """Build the site of a folder that has `.mkdocs.yml` and `docs`, into its `site`."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", ".mkdocs.yml"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(PAGES, root / "docs")
    shutil.copy(ROOT / ".mkdocs.yml", root)
    done = build(root)
    assert done.returncode == 0, done.stdout + done.stderr
    return root / "site"


class Links(HTMLParser):
    """What a page loads by itself: images, styles, scripts."""

    def __init__(self):
        super().__init__()
        self.loaded = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in {"img", "script", "iframe"} and given.get("src"):
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") in {"stylesheet", "preconnect", "preload", "icon"}:
            self.loaded.append(given["href"])


def test_every_page_is_there_and_in_the_navigation(site):
    start = (site / "index.html").read_text(encoding="utf-8")
    pages = [page.relative_to(PAGES).with_suffix(".html").as_posix() for page in PAGES.rglob("*.md")]
    assert len(pages) > 30
    assert [page for page in pages if not (site / page).exists()] == []
    left_out = [page for page in pages if f'href="./{page}"' not in start and page != "index.html"]
    assert left_out == [], "name them under nav in .mkdocs.yml"


def test_no_page_loads_anything_from_elsewhere(site):
    for page in site.rglob("*.html"):
        links = Links()
        links.feed(page.read_text(encoding="utf-8"))
        assert [one for one in links.loaded if re.match(r"(https?:)?//", one)] == [], page.name


def test_the_plots_are_there(site):
    text = (site / "verdicts.html").read_text(encoding="utf-8")
    plots = re.findall(r'src="(plots/\w+\.svg)"', text)
    assert sorted(plots) == sorted(f"plots/{plot.name}" for plot in (PAGES / "plots").glob("*.svg"))
    assert all((site / plot).exists() for plot in plots)


def test_a_broken_link_fails_the_build(tmp_path):
    """Else the others would prove nothing."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[nowhere](nowhere.md) and [here](#there)\n")
    config = (ROOT / ".mkdocs.yml").read_text(encoding="utf-8")
    config = re.sub(r"nav:\n(.*\n)+?(?=validation)", "nav: [index.md]\n", config)
    (tmp_path / ".mkdocs.yml").write_text(config)
    done = build(tmp_path)
    assert done.returncode != 0
    told = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    assert "page does not exist" in told
    assert "nowhere.md" in told
    assert "#there" in told
