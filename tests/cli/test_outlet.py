"""Streams that can't be written to."""

import io
import sys

import pytest

from gradcheck_cli.cli.console import (
    Outlet,
    OutputLostError,
    guard_output,
    print_commands,
)


class Full(io.StringIO):
    def flush(self):
        raise OSError(28, "No space left on device")


class Left(io.StringIO):
    def write(self, _):
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize(("stream", "code"), [(Full(), 3), (Left(), 141), (None, 3)])
def test_what_cant_be_written_ends_a_command_that_only_prints(stream, code):
    outlet = Outlet(stream, goes_on=False)
    with pytest.raises(OutputLostError):
        print("x", file=outlet, flush=True)
    assert outlet.code == code


@pytest.mark.parametrize("stream", [Full(), Left(), None])
def test_it_is_dropped_where_there_is_more_to_do(stream):
    outlet = Outlet(stream, goes_on=True)
    for _ in range(3):
        assert outlet.write("x") == 1
        outlet.flush()
    assert outlet.code in {3, 141}


def test_annotations_of_our_own_are_obeyed_in_ci(monkeypatch):
    monkeypatch.setenv("CI", "true")
    text = io.StringIO()
    monkeypatch.setattr(sys, "stdout", text)
    with guard_output():
        print("::error::theirs")  # noqa: T201 (what it is about)
        print_commands("::error::ours\n", err=False)
    assert text.getvalue() == ": :error::theirs\n::error::ours\n"
