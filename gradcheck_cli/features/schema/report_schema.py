"""The JSON Schema of the JSON report, made from the dataclasses that it is written from."""

from __future__ import annotations

import types
import typing
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

from gradcheck_cli.features.schema.json_schema import DIALECT
from gradcheck_cli.gate import BaselineFinding, Projection
from gradcheck_cli.reporting.exchange.json_report import LAYOUTS, SCHEMA_VERSION, Object
from gradcheck_cli.results import CaseError, CaseResult, CheckResult, PairResult, Report
from gradcheck_cli.serial import Layout, written_fields

_NUMBER: Object = {"$ref": "#/$defs/number"}
_TEXT: Object = {"type": "string"}
_CODE: Object = {"type": ["string", "null"], "pattern": "^GC[0-9]{3}$"}
# The schemas of what `LAYOUTS` writes in another form than the field's, or in addition to the fields.
_SCHEMAS: dict[type, dict[str, Object]] = {
    Report: {
        "schema_version": {"const": SCHEMA_VERSION},
        "exit_code": {"type": "integer"},
        "summary": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
        "evaluations_per_element": _NUMBER,
        "sides": {"type": "object", "properties": {"seen": {"type": "integer"}, "all": {"type": "integer"}}},
    },
    CaseResult: {
        "output": {
            "anyOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "properties": {
                        "lines": {"type": "array", "items": _TEXT},
                        "file": {"type": ["string", "null"]},
                    },
                    "required": ["lines", "file"],
                },
            ]
        },
        "not_differentiated": {
            "type": "array",
            "items": {"type": "object", "properties": {"output": _TEXT, "dtype": _TEXT}},
        },
    },
    PairResult: {
        "worst_ratio": {"anyOf": [_NUMBER, {"type": "null"}]},
        "relative_error": {"anyOf": [_NUMBER, {"type": "null"}]},
        "code": _CODE,
    },
    CheckResult: {"code": _CODE},
    CaseError: {"code": _CODE},
    BaselineFinding: {"code": _CODE, "failure": {"type": "boolean"}},
}


def report_schema() -> Object:
    """Return the JSON Schema (draft 2020-12) of what `--report json=FILE` writes.

    Later versions may add fields, so unknown ones are allowed.
    """
    definitions: dict[str, Object] = {
        "number": {
            "description": "A number; those that JSON has no word for are texts.",
            "anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}],
        },
        "complex": {
            "description": "A number, or [re, im].",
            "anyOf": [
                _NUMBER,
                {"type": "array", "prefixItems": [_NUMBER, _NUMBER], "minItems": 2, "maxItems": 2},
            ],
        },
    }
    top = _schema_of_dataclass(Report, definitions)
    return {"$schema": DIALECT, "title": "gradcheck report", **top, "$defs": definitions}


def _schema_of_dataclass(kind: type, definitions: dict[str, Object]) -> Object:
    layout = LAYOUTS.get(kind, Layout())
    schemas = {name: _schema_of(hint, definitions) for name, hint in written_fields(kind, layout).items()}
    properties = {name: schema for name, schema in schemas.items() if name not in layout.left_out}
    properties |= {name: {"type": ["string", "null"]} for name in layout.null}
    properties |= _SCHEMAS.get(kind, {})
    return {"type": "object", "properties": properties, "required": list(properties)}


def _schema_of(kind: Any, definitions: dict[str, Object]) -> Object:  # noqa: ANN401, PLR0911 (a type; one for each kind)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if complex in inner:
            return {"$ref": "#/$defs/complex"}
        (only,) = [argument for argument in inner if argument is not type(None)]
        return {"anyOf": [_schema_of(only, definitions), {"type": "null"}]}
    if origin is tuple and inner[-1] is Ellipsis:
        return {"type": "array", "items": _schema_of(inner[0], definitions)}
    if origin is tuple:
        items = [_schema_of(argument, definitions) for argument in inner]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(inner[1], definitions)}
    if kind is Projection:
        return {"type": "array", "prefixItems": [_NUMBER, _NUMBER], "minItems": 2, "maxItems": 2}
    if is_dataclass(kind):
        name = typing.cast("type", kind).__name__
        if name not in definitions:
            definitions[name] = {}  # it precedes the definitions that it refers to
            definitions[name] = _schema_of_dataclass(typing.cast("type", kind), definitions)
        return {"$ref": f"#/$defs/{name}"}
    if issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    plain = {bool: {"type": "boolean"}, int: {"type": "integer"}, float: _NUMBER, str: _TEXT}
    return plain[kind]
