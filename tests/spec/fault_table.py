"""Tables of faults as text: a line for each has what is written, `=>`, and what is said of it."""

from __future__ import annotations


def faults_in(table, **tokens):
    """Return (written, said) of each line; `\\n` stands for a line's end, and `<NAME>` for a token's text."""
    found = []
    for line in table.strip().splitlines():
        written, said = line.split(" => ")
        written = written.replace("\\n", "\n")
        for name, text in tokens.items():
            written = written.replace(f"<{name}>", text)
        found.append((written, said))
    return found
