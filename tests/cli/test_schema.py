from __future__ import annotations

import json

import jsonschema
import pytest

pytestmark = pytest.mark.feature


def test_the_schema_is_json_and_a_schema(invoke):
    result = invoke("schema")
    assert result.code == 0
    schema = json.loads(result.out)
    jsonschema.validators.validator_for(schema).check_schema(schema)
