"""The numbers that pages call right are right to each digit that they show."""

import re
from decimal import Decimal

import pytest
from mpmath import mp

from tests.audit.causes import causes
from tests.audit.confirmed import CONFIRMED

CAUSES = {cause.path.stem: cause for cause in causes()}
# Of a complex number both parts: the sign of the second follows a digit or a point.
NUMBER = re.compile(r"(?:(?<![\w.])|(?<=[\d.])(?=-))-?\d+(?:\.\d*)?(?:e[+-]\d+)?")


def shown(cause):
    """Return the numbers that a page calls right, as text."""
    found = NUMBER.findall(cause.expected)
    return found or re.findall(r"the slope is (\S+)", cause.printed)


def half_a_unit(text):
    """Return half a unit of the last digit that is shown; what is shown as whole is exact."""
    last = Decimal(text).as_tuple().exponent
    return float(Decimal(5).scaleb(last - 1)) if last < 0 else 0


@pytest.mark.parametrize("name", CONFIRMED)
def test_what_a_page_calls_right(name):
    with mp.workdps(50):
        exact = [float(number) for number in CONFIRMED[name]()]
    written = shown(CAUSES[name])
    assert len(written) == len(exact)
    for text, number in zip(written, exact, strict=True):
        # Numbers of float32 are off by its rounding, too.
        assert float(text) == pytest.approx(number, rel=1e-6, abs=1.01 * half_a_unit(text)), written
    assert CAUSES[name].printed != CAUSES[name].expected
