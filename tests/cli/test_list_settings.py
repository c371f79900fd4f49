"""What a project's settings mean for a `gradcheck list` that asks for something else."""

from __future__ import annotations

import pytest

from gradcheck_cli.cli import list as list_module

SETTINGS = '[tool.gradcheck.list]\nspecs = "specs"\nfail-under = 90\ncoverage = ["missing"]\n'
CASES = [
    (["MatMul"], {"fail_under", "uncovered", "words", "report_file"}),
    (["MatMul", "--uncovered"], {"words", "report_file"}),
    (["--fail-under", "5"], {"words", "report_file"}),
    (["--coverage", "gone"], {"fail_under", "uncovered"}),
    ([], set()),
]


@pytest.mark.parametrize(
    ("arguments", "dropped"), CASES, ids=[" ".join(row[0]) or "nothing" for row in CASES]
)
def test_settings_that_dont_go_with_the_command_line_are_left_out(tmp_path, monkeypatch, arguments, dropped):
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    with list_module.command.make_context("list", list(arguments)) as ctx:
        assert list_module._unasked(ctx) == dropped  # noqa: SLF001 (what it decides, without TensorFlow)


def test_a_measure_without_specs_is_none_of_a_look_up(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.gradcheck.list]\nfail-under = 90\n")
    monkeypatch.chdir(tmp_path)
    with list_module.command.make_context("list", ["MatMul"]) as ctx:
        assert "fail_under" in list_module._unasked(ctx)  # noqa: SLF001 (as above)
