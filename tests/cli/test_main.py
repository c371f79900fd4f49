import os
import re
import subprocess
import sys
from importlib.metadata import version

import pytest

from gradcheck_cli import __version__
from gradcheck_cli.cli.console import version_warning
from gradcheck_cli.cli.main import COMMANDS
from gradcheck_cli.errors import CaseFailedError, Fault, GradcheckError, NoSpecsError, SpecError


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_names_every_command_and_exit_code(invoke, flag):
    result = invoke(flag)
    assert result.code == 0
    assert all(re.search(rf"^  {name}  ", result.out, re.MULTILINE) for name in COMMANDS)
    assert "Exit codes: 0 all right, 1 a gradient is wrong" in result.out


def test_version_names_tensorflow_too(invoke):
    result = invoke("--version")
    assert result.code == 0
    assert result.out.startswith(f"gradcheck {__version__} (tensorflow {version('tensorflow')}, python 3.")


def test_no_command_shows_the_help_and_fails(invoke):
    result = invoke()
    assert result.code == 2
    assert "Usage: gradcheck" in result.out + result.err


@pytest.mark.parametrize(
    ("arguments", "wording"),
    [
        (["runn"], "No such command 'runn'. Did you mean 'run'?"),
        pytest.param(
            ["zzz"],
            "No such command 'zzz'. Commands: run, init, show, blame, trace, search, mutate, list, diff,",
            marks=pytest.mark.feature,
        ),
        (["run", "--strickt"], "--strict"),
        (["run", "--format", "yaml"], "'yaml' is not one of 'table', 'json'"),
        (["run", "--seed", "x"], "'x' is not a valid integer"),
        (["run", "-q", "-v"], "-q and -v exclude each other."),
        pytest.param(["show", "a.yaml", "--output", "-1"], "whole numbers from 0", marks=pytest.mark.feature),
        pytest.param(["list", "--status", "x"], "'x' is not one of", marks=pytest.mark.feature),
    ],
)
def test_bad_usage_says_what_was_meant(invoke, arguments, wording):
    result = invoke(*arguments)
    assert result.code == 2
    assert wording in result.err
    assert not result.out


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (NoSpecsError("no spec in 'specs'"), 5, "no spec in 'specs'\n"),
        (SpecError([Fault("a.yaml", 3, "op", "bad"), Fault("a.yaml", 1, "", "worse")]), 2,
         "a.yaml:1: worse\na.yaml:3: op: bad\n"),
        (GradcheckError("[bold] no markup"), 2, "[bold] no markup\n"),
        (CaseFailedError("forward", "ValueError: no", ('File "a.py", line 3', "  f(x)")), 3,
         'ValueError: no\n  File "a.py", line 3\n    f(x)\n'),
    ],
)  # fmt: skip
def test_an_error_is_its_message_on_standard_error(invoke, engine, error, code, text):
    engine.load_error = error
    for command in ("run", "validate"):
        result = invoke(command, "specs")
        assert (result.code, result.out, result.err) == (code, "", text)


def test_a_crash_of_ours_is_no_verdict(invoke, engine):
    engine.load_error = ZeroDivisionError("oops")
    result = invoke("run", "specs")
    assert result.code == 3
    assert "ZeroDivisionError: oops" in result.err
    assert "gradcheck: internal error (ZeroDivisionError): a bug; please report it\n" in result.err


def test_an_interrupt_outside_a_run(invoke, engine):
    engine.load_error = KeyboardInterrupt()
    result = invoke("run", "specs")
    assert (result.code, result.err.strip()) == (130, "interrupted")


def test_a_terminal_without_unicode_gets_question_marks(tmp_path):
    script = (
        "import gradcheck_cli.cli.main as m\n"
        "m.run_command = lambda: m.sys.stdout.write('a \\xb7 b') and 0\n"
        "m.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert done.stdout == b"a ? b"


@pytest.mark.parametrize(
    ("version", "is_newer"),
    [("2.21.0", False), ("2.16.2", False), ("2.22.0rc1", True), ("3.0", True), ("", False)],
)
def test_a_newer_tensorflow_than_the_tested_ones_gets_a_warning(version, is_newer):
    assert bool(version_warning(version)) == is_newer
