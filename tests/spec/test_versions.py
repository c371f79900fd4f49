from __future__ import annotations

import pytest

from gradcheck_cli.spec.case import is_specifier, version_fits


@pytest.mark.parametrize("text", [">=2.18", ">=2.16, <2.20", "==2.21.*", "~=2.18", "!=2.19.0"])
def test_what_pep_440_calls_a_specifier_is_one(text):
    assert is_specifier(text)


@pytest.mark.parametrize("value", ["2.18", "", " ", ">= two", 2.18, None, [">=2.18"]])
def test_anything_else_is_none(value):
    assert not is_specifier(value)


@pytest.mark.parametrize(
    ("version", "specifier", "found"),
    [
        ("2.21.0", ">=2.18", True),
        ("2.16.2", ">=2.18", False),
        ("2.9.0", ">=2.18", False),  # by number, not by letter
        ("2.21.0", ">=2.16,<2.20", False),
        ("2.22.0rc1", ">=2.22", True),
        ("2.22.0.dev20260101", ">=2.21", True),
        ("2.21.0", "", True),
    ],
)
def test_versions(version, specifier, found):
    assert version_fits(version, specifier) is found
