"""Specs written to a folder of their own, read as a user would name them."""

from textwrap import dedent

import pytest

from gradcheck_cli.errors import SpecError
from gradcheck_cli.spec.load import load_cases
from gradcheck_cli.spec.values.draw_values import draw


@pytest.fixture
def cases_of(tmp_path, monkeypatch):
    """Return a function from the text of `a.yaml` to its cases."""
    monkeypatch.chdir(tmp_path)

    def read(text, **options):
        (tmp_path / "a.yaml").write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        return load_cases(["a.yaml"], **options)

    return read


@pytest.fixture
def faults_of(cases_of):
    """Return a function from the text of `a.yaml` to its faults, one a line."""

    def read(text):
        with pytest.raises(SpecError) as caught:
            cases_of(text)
        return str(caught.value).split("\n")

    return read


@pytest.fixture
def input_of(cases_of):
    """Return a function from an input in flow style to its case and tensor."""

    def read(written, head=""):
        (case,) = cases_of(f"op: f\nforward: m:f\n{head}inputs:\n  x: {written}\n")
        return case, case.tensors[0]

    return read


@pytest.fixture
def drawn(input_of):
    """Return a function from an input in flow style to its values at sample 0."""
    return lambda written, sample=0: draw(*input_of(written), sample)
