"""What the user's exceptions and modules may do when they are looked at, and how much of them is kept."""

import pytest

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.running import session
from gradcheck_cli.tensorflow_backend import frames


class RaisesForName(type):
    @property
    def __name__(cls):
        raise SystemExit(3)


class HasNoName(type):
    def __getattribute__(cls, name):
        if name == "__name__":
            raise AttributeError("hidden")
        return super().__getattribute__(name)


class ExitsError(Exception, metaclass=RaisesForName):
    pass


class HiddenError(Exception, metaclass=HasNoName):
    pass


@pytest.mark.parametrize("name", ["ExitsError", "HiddenError"])
def test_an_exception_that_hides_its_name_is_named(name):
    failure = globals()[name]("x")  # pytest reads the names of parameters too
    assert frames.first_line(failure) == f"{name}: x"
    assert f"{name}: x" in session._describe_error(failure).message


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("y" * 10_000_000),
        SystemExit("y" * 10_000_000),
        BaseException("y" * 10_000_000),
        CaseFailedError("forward", "y" * 10_000_000, ("z" * 10_000_000,)),
    ],
)
def test_a_report_has_room_for_what_is_kept_of_an_exception(failure):
    error = session._describe_error(failure)
    assert len(error.message) + sum(map(len, error.traceback)) < 10_000
    assert "y" * 500 in error.message
    assert "characters left out" in error.message
