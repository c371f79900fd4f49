"""The layers under `specs/layers`, whole: each passes in every mode it names, weights included."""

from tests.support.processes import ROOT


def test_a_weights_jacobian_is_shown(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = command("show", "specs/layers/convolution.yaml", "--pair", "dy/dbias", "--output", "0,0,0,1")
    assert done.code == 0
    assert "dy[0,0,0,1]/dbias  (y (1, 3, 3, 2), bias (2,))" in done.out


def test_a_variable_that_is_none_is_told(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = command("show", "specs/layers/convolution.yaml", "--pair", "dy/dbiases")
    assert done.code == 2
    assert "--pair: no pair 'dy/dbiases'; there are dy/dx, dy/dkernel, dy/dbias." in done.err
