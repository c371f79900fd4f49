"""Makes text from outside harmless to print: it can't move the cursor or give commands to a CI service."""

from __future__ import annotations

import os
import re
import unicodedata

# The commands that a CI service obeys in a job's log. GitHub and Azure find `##[` and `##vso[` anywhere in a
# line; the others count only at its start.
_ANYWHERE = re.compile(r"##(?=\[|vso\[)", re.IGNORECASE)
_AT_START = re.compile(r"^(\s*)(::|##teamcity\[)", re.IGNORECASE)
# Of a text that the user's code made, such as an exception's. GitHub takes 1 MiB for the page of a job.
_MOST_CHARACTERS = 4000
_CI = ("CI", "GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")


def clean(text: str) -> str:
    """Return `text` with control characters made visible, so that no message moves the cursor."""
    return "".join(
        repr(char)[1:-1] if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char
        for char in text
    )


def shorten(text: str) -> str:
    """Return `text` with its middle left out if it is longer than any report has room for."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    end = _MOST_CHARACTERS // 4  # a message that quotes the result is short enough too
    return f"{text[:end]} ... ({len(text) - 2 * end:,} characters left out) ... {text[-end:]}"


def is_read_by_ci() -> bool:
    """Whether a CI service reads what this process prints."""
    return any(os.environ.get(name, "") not in ("", "0", "false") for name in _CI)


def without_commands(text: str, before: str = "") -> str:
    """Return text with a blank inserted into whatever a CI service would obey."""
    lines = re.split(r"(?<=[\n\r])", text)
    for index, line in enumerate(lines):
        start = before if index == 0 else ""
        whole = _AT_START.sub(lambda match: f"{match[1]}{match[2][0]} {match[2][1:]}", start + line)
        whole = _ANYWHERE.sub("# #", whole)
        # What is printed can't be changed, so a blank is put in between.
        lines[index] = whole[len(start) :] if whole.startswith(start) else f" {line}"
    return "".join(lines)
