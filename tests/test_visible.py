"""Text that others wrote does nothing as it is printed."""

import pytest

from gradcheck_cli.cli.console import is_read_by_ci, without_commands
from gradcheck_cli.visible import clean

OBEYED = [
    "::error::x",
    "  ::stop-commands::t",
    "a ##[group]b",
    "##vso[task.complete]",
    "##teamcity[testFailed]",
    "ok\n::x::",
]


@pytest.mark.parametrize("text", OBEYED)
def test_a_command_has_a_blank_in_it(text):
    found = without_commands(text)
    assert not any(line.lstrip().startswith(("::", "##teamcity[")) for line in found.splitlines())
    assert "##[" not in found
    assert "##vso[" not in found
    assert found.replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("text", ["a :: b", "## heading", "x = a[::2]", "::"[:1], "plain\n", ""])
def test_anything_else_is_as_it_was(text):
    assert without_commands(text) == text


@pytest.mark.parametrize(("before", "text"), [(":", ":error::"), ("a #", "#[error]"), ("  ", "::x")])
def test_a_command_in_two_parts_is_none(before, text):
    line = before + without_commands(text, before)
    assert not line.lstrip().startswith("::")
    assert "##[" not in line


def test_control_characters_are_shown():
    assert clean("a\nb\x1b[31m\u2028\u202e") == "a\\nb\\x1b[31m\\u2028\\u202e"


def test_a_ci_service_is_known_by_its_variables(monkeypatch):
    for name in ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"):
        monkeypatch.delenv(name, raising=False)
    assert not is_read_by_ci()
    monkeypatch.setenv("CI", "false")
    assert not is_read_by_ci()
    monkeypatch.setenv("TF_BUILD", "True")
    assert is_read_by_ci()
