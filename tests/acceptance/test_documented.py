"""What the documentation shows is what the commands print."""

import shlex
import sys

import pytest

from gradcheck_cli.checking.checks.all_checks import UNTESTED, UNTESTED_NONE
from gradcheck_cli.numerics.reasons import EXPLANATIONS
from gradcheck_cli.spec.words import CHECKS
from tests.acceptance.documented import excerpts, masked, play
from tests.support import processes
from tests.support.processes import ROOT

pytestmark = pytest.mark.once

EXCERPTS = {
    f"{name}: {line}": (line, shown)
    for name in ("README.md", "docs/commands.md")
    for line, shown in excerpts((ROOT / name).read_text(encoding="utf-8"))
}

SCRIPTS = [
    file.stem
    for file in sorted((ROOT / "tests/acceptance").glob("[!t]*.py"))
    if "ArgumentParser(" in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_starts_where_a_page_says(name):
    done = processes.run(sys.executable, "-m", f"tests.acceptance.{name}", "--help", cwd=ROOT)
    assert (done.returncode, done.stdout[:6]) == (0, "usage:"), done.stderr


@pytest.mark.parametrize("name", ["tutorial.md", "howto.md", "why.md"])
def test_each_command_of_a_page_prints_what_the_page_shows(name, tmp_path):
    """Else: `python -m tests.acceptance.documented docs/NAME.md --write`, and read what has changed."""
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert masked(play(page, tmp_path)) == masked(page)


def test_the_readme_is_read_in_a_few_minutes():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert sum(any(map(str.isalnum, word)) for word in text.split()) <= 1000


@pytest.mark.parametrize("excerpt", EXCERPTS)
def test_what_is_shown_is_what_commands_print(command, monkeypatch, excerpt):
    line, shown = EXCERPTS[excerpt]
    monkeypatch.chdir(ROOT)
    done = command(*shlex.split(line)[1:])
    # Of a run the sum at the end counts all its cases; an excerpt may leave it out.
    assert masked(shown) in masked(done.out)


def test_only_what_varies_is_masked():
    assert masked("a  2.27 s  1.5e-13 3.33e-01") == "a # s  ~0 3.33e-01"
    assert masked("6 passed in 3.21s") == "6 passed in # s"
    assert masked("1.0e-06 0.000e+00 2e-3") == "1.0e-06 ~0 2e-3"
    assert masked("miss probability 7.1e-04 for 1 %") == "miss probability ~0 for 1 %"
    assert masked("calls\n __forward_product_33") == "calls\n __forward_product_#"


def test_why_tells_of_every_reason_and_every_check():
    page = (ROOT / "docs" / "why.md").read_text(encoding="utf-8")
    reasons = [one for reason in EXPLANATIONS.values() for one in (reason.message, reason.remedy)]
    assert [text for text in reasons if text not in page] == []
    assert [text for text in (UNTESTED, UNTESTED_NONE) if text.partition(":")[0] not in page] == []
    table = page[page.index("| reason | remedy |") :].partition("\n\n")[0]
    told = [row.split("|")[1].strip() for row in table.splitlines()[2:]]
    random = "the forward draws random numbers, anew at each evaluation"  # and their types
    messages = [*reasons, UNTESTED, UNTESTED_NONE, random]
    assert [row for row in told if not any(message.startswith(row) for message in messages)] == []
    # all_zero is told of by its message.
    assert [name for name in CHECKS if f"`{name}" not in page and name != "all_zero"] == []
