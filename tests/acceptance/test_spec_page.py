"""The reference of the spec format is the models'."""

import re

import pytest

from gradcheck_cli.features.schema.json_schema import json_schema
from tests.acceptance.spec_page import PAGE, page

pytestmark = pytest.mark.once


def test_the_page_is_current():
    """Else: `python -m tests.acceptance.spec_page`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_key_of_every_model_is_there():
    shown = set(re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    models = json_schema()["$defs"].values()
    assert {key for model in models for key in model.get("properties", {})} - shown == set()
