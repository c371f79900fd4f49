from __future__ import annotations

from pathlib import Path

import pytest

from gradcheck_cli.reporting.formats import FORMATS, TO_FILES, render


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_renders_a_report(kind, report):
    assert "huber" in render(kind, report, Path.cwd())


@pytest.mark.feature  # formats for other programs
def test_an_unknown_format_is_refused(report):
    with pytest.raises(ValueError, match="no format 'pdf'; there are json, junit, "):
        render("pdf", report, Path.cwd())


@pytest.mark.feature  # formats for other programs
def test_what_a_terminal_alone_shows_goes_to_no_file():
    assert set(FORMATS) - set(TO_FILES) == {"github", "concise"}
