"""The tables of gradients: what is said of each is true."""

from __future__ import annotations

import pytest

from tests.support.excused import without_blame
from tests.support.row import require
from tests.support.rows import parameters, tables


@pytest.mark.parametrize("row", parameters(row for rows in tables().values() for row in rows))
def test_what_is_said_is_true(row):
    with without_blame():
        require(row)
