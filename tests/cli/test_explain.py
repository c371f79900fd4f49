"""`gradcheck explain`."""

import pytest

from gradcheck_cli.cli.main import run_command

pytestmark = pytest.mark.feature


@pytest.mark.parametrize("text", ["GC102", "linearity"])
def test_it_prints_a_codes_page(text, capsys):
    assert run_command(["explain", text]) == 0
    out = capsys.readouterr().out
    assert out.startswith("## GC102 linearity\n")
    assert "checks: {linearity: false}" in out


def test_an_unknown_code_is_bad_usage(capsys):
    assert run_command(["explain", "lineariti"]) == 2
    assert capsys.readouterr().err == "no finding has the code 'lineariti'; did you mean 'linearity'?\n"
