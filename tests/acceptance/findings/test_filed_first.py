"""The programs of the findings to be filed first run as they are, and print what is said of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "gradcheck_findings.md"
FIRST = PAGE.read_text(encoding="utf-8").split("## File these first")[1].split("### Then these")[0]
PROGRAMS = re.findall(r"```python\n(.*?)```", FIRST, flags=re.DOTALL)
PRINTED = (
    "1.0000 + 0.0907 + 0.6629 = 1.7536",
    "3.17 0.78 0.00 0.00",
    "1.84 0.00 0.00 2.16",
    "0.67 0.00 0.00\n0.44 -0.22 -0.22",
    "0.00 0.00 0.00\n-0.70 0.30 0.30",
)


@pytest.mark.parametrize(("program", "printed"), list(zip(PROGRAMS, PRINTED, strict=True)))
def test_a_program_prints_what_is_said_of_it(program, printed):
    if "tensorflow_probability" in program:
        pytest.importorskip("tensorflow_probability")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == printed, ran.stderr
