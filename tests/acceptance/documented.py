"""Runs what a page of documentation shows, and compares it with what the page says; `--write` puts it right.

A fenced block with `title="NAME"` is written to a file of a scratch folder; a `console` block is run there,
each line after `$ ` by a shell, and what it prints is the rest of the block. Elsewhere,
`<!-- output: COMMAND -->` before a block says what prints it, in the repository's root; what follows a comma
is about the excerpt.

    python -m tests.acceptance.documented docs/tutorial.md --write
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXCERPT = re.compile(r"<!-- output: ([^>]*?)(?:, [^>]*)? -->\n```\n(.*?)```", re.DOTALL)
TIME = re.compile(r" *\b\d+(?:\.\d+)? ?s\b")
# Rounding, of which each build of TensorFlow has its own; and how far a probe sees, measured with it.
SMALL = re.compile(
    r"\b(?:\d(?:\.\d+)?e-(?:0[7-9]|[1-9]\d+)|0\.0+e\+00|\d\.\de-\d+(?=  pass)|(?<=miss probability )\S+)"
)
# TensorFlow numbers the graphs of functions as it makes them.
NUMBERED = re.compile(r"\b(__\w+_)\d+\b")
LIMIT = 600


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is, its text, and where that stands."""

    language: str
    title: str | None
    text: str
    start: int
    end: int


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [
        Block(match[1], match[2], match[3], match.start(3), match.end(3)) for match in FENCE.finditer(page)
    ]


def excerpts(page: str) -> list[tuple[str, str]]:
    """Return each command of a `<!-- output: COMMAND -->`, and the output shown."""
    return [(match[1], match[2]) for match in EXCERPT.finditer(page)]


def masked(text: str) -> str:
    """Return a text without what differs from run to run: times, and digits that are rounding alone."""
    return NUMBERED.sub(r"\1#", SMALL.sub("~0", TIME.sub(" # s", text)))


def commands_of(text: str) -> list[str]:
    """Return the commands of a console block."""
    return [line[2:] for line in text.splitlines() if line.startswith("$ ")]


def printed(text: str, folder: Path, tools: Path) -> str:
    """Run a console block's commands in a folder, and return the block as it should read."""
    lines = ["set +e", "status=0"]
    for command in commands_of(text):
        lines += [f"printf '%s\\n' {shlex.quote('$ ' + command)}", "(exit $status)", command, "status=$?"]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],  # noqa: S607 (whichever bash there is: a reader's)
        cwd=folder,
        env=_environment(tools),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def shims(folder: Path) -> Path:
    """Write the commands that pages call, so that they run in this very Python; return their folder."""
    tools = folder / "bin"
    tools.mkdir()
    for name, module in {
        "gradcheck": "gradcheck_cli",
        "pytest": "pytest",
        "pre-commit": "pre_commit",
    }.items():
        script = tools / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n')
        script.chmod(0o755)
    return tools


def play(page: str, scratch: Path) -> str:
    """Go through a page in a scratch folder; return it with what its commands really print."""
    tools, folder = shims(scratch), scratch / "project"
    folder.mkdir()
    pieces, last = [], 0
    for block in blocks(page):
        if block.title is not None:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text)
        elif block.language == "console":
            pieces += [page[last : block.start], printed(block.text, folder, tools)]
            last = block.end
    return "".join([*pieces, page[last:]])


def _environment(tools: Path) -> dict[str, str]:
    """Return the variables of a fresh shell, in which nothing says how this one runs its tests."""
    left_out = ("TF_", "GIT_", "PYTEST_", "GRADCHECK_", "COLUMNS", "FORCE_COLOR")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
    root = str(Path(__file__).parents[2])
    return {
        **kept,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        "PRE_COMMIT_HOME": str(tools.parent / "pre-commit"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "NO_COLOR": "1",
    }


def main() -> None:
    """Show where pages differ from what they say, or put them right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="write what the commands print into the pages")
    given = parser.parse_args()
    for path in given.pages:
        page = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as scratch:
            played = play(page, Path(scratch))
        if given.write:  # times and rounding too
            path.write_text(played, encoding="utf-8")
        if masked(played) != masked(page):
            sys.stdout.write(f"{path}: {'written anew' if given.write else 'differs from what is printed'}\n")


if __name__ == "__main__":
    main()
