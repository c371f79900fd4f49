"""The reference of the spec format is the models'."""

import pytest

from tests.acceptance.spec_page import PAGE, page

pytestmark = pytest.mark.once


def test_the_page_is_current():
    """Else: `python -m tests.acceptance.spec_page`."""
    assert PAGE.read_text(encoding="utf-8") == page()
