"""The numbers that the README and the docs give of the audit are those of its tables."""

import re

import pytest

from tests.audit import test_functions
from tests.audit.audit_table import BEGIN, END, PAGE, ROOT
from tests.audit.function_table import families

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.once  # it counts what the newest TensorFlow offers
def test_public_functions():
    found = families()
    covered = sum(found[module].names["covered"] for module in test_functions.MODULES)
    for text in (README, PAGE.read_text(encoding="utf-8")):
        assert f"{covered} public functions" in text


def test_op_types():
    inside = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    (op_types,) = re.findall(r"\| \*\*all\*\* \| \*\*([\d,]+)\*\*", inside)
    assert f"{op_types} op types" in README
