"""The HTML page: what it says, that it fetches nothing, and that nobody's name becomes markup."""

import re
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest

from gradcheck_cli.features.page import page
from gradcheck_cli.features.page.page import to_html
from gradcheck_cli.plain_files import read_plain
from tests.reporting.figures import tanh_figure
from tests.support.flat_results import altered

VOID = {"meta", "link", "input", "br", "img"}
NASTY = [
    '<script>alert("x")</script>',
    "</style><b>",
    "{{ 7 * 7 }}",
    "a\"onload='x'",
    "$\\frac{1}{2}$",
    "\x1b[31m",
]


needs_matplotlib = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason='pictures need the extra plot: pip install "gradcheck-cli[plot]"'
)


class Tree(HTMLParser):
    """Keeps elements with their attributes and texts; fails where tags don't close."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self._open = [], [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] not in {"style", "script"}:
            self.texts.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture
def drawn(report):
    """Return the report with pictures of the pair that mismatches."""
    huber = report.cases[1]
    pair = altered(huber.pairs[0], figure=tanh_figure(), mismatch="value")
    return altered(report, cases=(report.cases[0], altered(huber, pairs=(pair,)), report.cases[2]))


def read(report, root=Path()):
    return Tree(to_html(report, root))


def test_it_says_the_verdict_first_and_what_failed_first(drawn):
    text = read(drawn).text
    assert text.index("1 of 3 pairs is wrong") < text.index("What failed first") < text.index("Pairs 3 specs")
    assert "dy/dx mismatched, of huber · wide · float32" in text
    assert "1 of 3 pairs is wrong, 1 error, 1 failed check 3 ops" in text
    assert "GC101 value" in text
    assert "TensorFlow 2.21.0" in text


def test_each_pair_is_a_row_and_what_is_no_plain_pass_has_its_details(drawn):
    tree = read(drawn)
    rows = [attrs["data-status"] for attrs in tree.all("tr") if "data-status" in attrs]
    assert rows == ["mismatched", "error", "passed", "passed"]  # the gravest first
    details = tree.all("details")[-1]
    assert f"#{details['id']}" in [attrs.get("href") for attrs in tree.all("a")]
    assert "gradcheck run specs/huber.yaml --case wide --seed 0" in tree.text


def test_it_fetches_nothing(drawn):
    text = to_html(drawn, Path())
    tree = Tree(text)
    assert not any("src" in attrs for _, attrs in tree.elements)
    hrefs = [attrs.get("href") or attrs.get("xlink:href") or "" for _, attrs in tree.elements]
    assert [one[:20] for one in hrefs if one and not one.startswith(("#", "data:"))] == []
    assert not re.search(r"url\((?!#)|@import", text)


def named(report, name):
    """Return a report in which all that somebody else wrote is this."""
    figure = tanh_figure(name=name)
    pair = altered(
        report.cases[1].pairs[0],
        label=f"d{name}/dx",
        message=name,
        diagnosis=(name,),
        note=name,
        figure=figure,
    )
    case = altered(report.cases[1], op=name, case=name, spec=f"{name}:3", reproduce=name, pairs=(pair,))
    return altered(report, cases=(report.cases[0], case, report.cases[2]))


@pytest.mark.parametrize("name", NASTY)
def test_nobodys_name_is_markup(drawn, name):
    plain, nasty = read(named(drawn, "name")), read(named(drawn, name))
    drawing = {"path", "g", "use", "text", "tspan"}
    kinds = [[tag for tag, _ in tree.elements if tag not in drawing] for tree in (plain, nasty)]
    assert kinds[0] == kinds[1]
    assert not any("onload" in attrs for _, attrs in nasty.elements)
    shown = name.replace("\x1b", "\\x1b")
    assert nasty.text.count(" ".join(shown.split())) > 5


@pytest.mark.parametrize("name", ["a & b.yaml", "\x1b[31m", "\udcff"])  # the last isn't UTF-8
def test_a_link_to_the_cases_of_a_spec_names_it_as_their_rows_do(drawn, name):
    case = altered(drawn.cases[1], spec=f"{name}:3")
    tree = read(altered(drawn, cases=(drawn.cases[0], case, drawn.cases[2])))
    links = [attrs["href"].partition("#?spec=")[2] for attrs in tree.all("a")]
    rows = {attrs["data-spec"] for attrs in tree.all("tr") if "data-spec" in attrs}
    assert name.replace("\x1b", "\\x1b").replace("\udcff", "\\udcff") in rows
    assert rows <= {unquote(link) for link in links}


def test_the_gradients_own_lines_are_shown_and_the_first_is_marked(drawn, tmp_path):
    file = tmp_path / "ops.py"
    file.write_text("import tensorflow\n\n\ndef grad(op, u):\n    return 2 * u\n\n\ndef other():\n    pass\n")
    case = altered(drawn.cases[1], source=f"{file}:4")
    tree = read(altered(drawn, cases=(case,)), tmp_path)
    assert "The gradient, ops.py:4" in tree.text
    assert "def grad(op, u):" in tree.text
    assert "def other" not in tree.text
    assert len([attrs for attrs in tree.all("span") if attrs.get("class") == "marked"]) == 1


def test_of_a_blamed_op_its_own_gradient_is_shown(drawn, tmp_path):
    file = tmp_path / "ops.py"
    file.write_text("def bad_tanh_grad(op, u):\n    return u\n\n\ndef forward(x):\n    return x\n")
    blamed = f"blame: op 'Tanh' (Tanh), gradient bad_tanh_grad at {file}:1: it is 1.5 times the derivative"
    pair = altered(drawn.cases[1].pairs[0], diagnosis=("a factor", blamed))
    case = altered(drawn.cases[1], source=f"{file}:5", pairs=(pair,))
    tree = read(altered(drawn, cases=(case,)), tmp_path)
    assert "The gradient, ops.py:1" in tree.text
    assert "def bad_tanh_grad" in tree.text
    assert "def forward" not in tree.text


@pytest.mark.parametrize(
    "name", ["../outside.py", ".git/config", "linked.py", "/proc/self/environ", "/dev/stdin", "a\0.py"]
)
def test_a_report_from_elsewhere_opens_nothing_but_sources_of_the_repository(
    drawn, tmp_path, name, monkeypatch
):
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "config").write_text("token = secret\n")
    (tmp_path / "outside.py").write_text("secret = 1\n")
    (root / "linked.py").symlink_to(tmp_path / "outside.py")
    (root / "own.py").write_text("own = 1\n")
    place = name if name.startswith("/") or "\0" in name else root / name
    opened = []
    monkeypatch.setattr(
        page, "read_plain", lambda path, limit: opened.append(path) or read_plain(path, limit)
    )
    case = drawn.cases[1]
    pair = altered(case.pairs[0], diagnosis=(f"blame: op 'Tanh' (Tanh), gradient grad at {place}:1: wrong",))
    tree = read(altered(drawn, cases=(altered(case, source=f"{place}:1", pairs=(pair,)),)), root)
    assert "secret" not in tree.text
    assert opened == []
    tree = read(altered(drawn, cases=(altered(case, source=f"{root / 'own.py'}:1", pairs=(pair,)),)), root)
    assert "own = 1" in tree.text


def test_a_name_that_the_font_lacks_is_drawn_without_a_warning(drawn):
    assert "漢字" in read(named(drawn, "漢字")).text  # pytest turns warnings into errors


@needs_matplotlib
def test_a_picture_that_cant_be_drawn_is_left_out_with_the_reason(drawn, monkeypatch):
    def fail(*_, **__):
        raise OverflowError("too large")

    monkeypatch.setattr("gradcheck_cli.features.page.pictures.pictures_of", fail)
    assert "The picture can't be drawn: OverflowError: too large" in read(drawn).text


def test_a_run_that_is_all_right_is_green_and_short(report):
    tree = read(altered(report, cases=report.cases[:1]))
    assert tree.text.startswith("gradcheck: all right")
    assert tree.all("header") == [{"class": "good"}]
    assert tree.all("details") == []
