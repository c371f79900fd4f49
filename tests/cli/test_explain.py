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
