"""The program of each cause's page prints what the page says."""

import contextlib
import io
import re
import subprocess
import sys

import pytest
import tensorflow as tf

from tests.audit.causes import causes

pytestmark = pytest.mark.once  # pages: what TensorFlow itself prints

PROGRAMS = {cause.path.stem: cause for cause in causes() if cause.program}
OLD = tuple(map(int, tf.__version__.split(".")[:2])) < (2, 21)


def run(program):
    """Return what a program prints, and of an error its name and the first line of what it says."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(program, "<page>", "exec"), {"__name__": "page"})  # noqa: S102 (a program of our own)
    except Exception as error:  # noqa: BLE001 (whatever it raises is on the page)
        text = str(error)
        if text.startswith("Graph execution error"):
            text = text.rstrip().split("\n\n")[-1]
        text = re.sub(r"^\{\{function_node \S+\}\} | \[Op:.*", "", text.strip().splitlines()[0])
        return f"{type(error).__name__}: {text[:110]}"
    return "\n".join(line.rstrip() for line in printed.getvalue().rstrip("\n").split("\n"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_what_its_page_says(name):
    cause = PROGRAMS[name]
    if OLD and tf.__version__ not in cause.facts["tried"]:
        pytest.skip("this version wasn't tried, or behaves otherwise")
    for package in ("tensorflow_probability", "keras"):
        if package in cause.program:
            pytest.importorskip(package)
    if cause.kind == "crash":
        ended = subprocess.run([sys.executable, "-c", cause.program], capture_output=True, check=False)
        assert ended.returncode < 0
    else:
        assert run(cause.program) == cause.printed
