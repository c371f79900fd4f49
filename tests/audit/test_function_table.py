"""The table of functions in docs/audit.md is that of the specs and of the installed TensorFlow and Keras."""

import pytest

from tests.audit.audit_table import PAGE
from tests.audit.function_table import HEADING, families, written


def test_nothing_is_missing():
    assert "missing" in HEADING
    assert not sum(family.names["missing"] for family in families().values())


@pytest.mark.once  # it counts what the newest TensorFlow offers
def test_what_is_committed_agrees_with_the_specs():
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, "run python -m tests.audit.function_table"
