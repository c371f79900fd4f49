"""`gradcheck schema`: prints the JSON Schemas of a spec document and of the JSON report.

They are made from the spec's format and from the report's dataclasses, so that they can't drift.
"""

from __future__ import annotations

import json
import types
import typing
from enum import Enum
from pathlib import Path
from typing import Any

import click

from gradcheck_cli.reporting.exchange.json_report import LAYOUTS, SCHEMA_VERSION, Object
from gradcheck_cli.results import Report
from gradcheck_cli.serial import Layout, write, written_fields


@click.command("schema")
@click.option(
    "--report", "is_report", is_flag=True, help="Print that of the JSON report (run --report json=FILE)."
)
def command(*, is_report: bool) -> None:
    """Print the JSON Schema of the spec format, with which an editor completes and checks specs."""
    schema = report_schema() if is_report else json_schema()
    click.echo(write(schema), nl=False)


# Definitions, and the schemas of what `LAYOUTS` writes in another form than the field's, or in addition to
# the fields.
_PARTS = Path(__file__).with_name("report_parts.json")


def report_schema() -> Object:
    """Return the JSON Schema (draft 2020-12) of what `--report json=FILE` writes.

    Later versions may add fields, so unknown ones are allowed.
    """
    schema = _ReportSchema(json.loads(_PARTS.read_text("utf-8")))
    top = schema.of_record(Report)
    top["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return {"$schema": DIALECT, "title": "gradcheck report", **top, "$defs": schema.definitions}


class _ReportSchema:
    """Makes schemas of types, and collects definitions of dataclasses."""

    def __init__(self, parts: dict[str, dict[str, Object]]) -> None:
        self.definitions, self._computed, self._plain = parts.values()

    def of_record(self, kind: type) -> Object:
        """Return the schema of a dataclass."""
        layout = LAYOUTS.get(kind, Layout())
        written = written_fields(kind, layout)
        properties = {name: self._of(hint) for name, hint in written.items() if name not in layout.left_out}
        properties |= {name: {"type": ["string", "null"]} for name in layout.null}
        properties |= self._computed.get(kind.__name__, {})
        return {"type": "object", "properties": properties, "required": list(properties)}

    def _of(self, kind: Any) -> Object:  # noqa: ANN401, PLR0911 (a type; one for each kind)
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            if complex in inner:
                return {"$ref": "#/$defs/complex"}
            (only,) = [argument for argument in inner if argument is not type(None)]
            return {"anyOf": [self._of(only), {"type": "null"}]}
        if origin is tuple and inner[-1] is Ellipsis:
            return {"type": "array", "items": self._of(inner[0])}
        if origin is tuple:
            items = list(map(self._of, inner))
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        if origin is dict:
            return {"type": "object", "additionalProperties": self._of(inner[1])}
        name = kind.__name__
        if name in self._plain:
            return self._plain[name]
        if issubclass(kind, Enum):
            return {"enum": [member.value for member in kind]}
        if name not in self.definitions:
            self.definitions[name] = {}  # it precedes the definitions that it refers to
            self.definitions[name] = self.of_record(kind)
        return {"$ref": f"#/$defs/{name}"}


DIALECT = "https://json-schema.org/draft/2020-12/schema"


# What a value of a spec must be, in words of our own.
_OUR_WORDS = ("expects", "whole", "remedy", "short", "extends", "format")


def json_schema() -> Object:
    """Return the JSON Schema (draft 2020-12) of one spec document.

    It describes each form: one op, `ops:` beside `defaults:`, or `exceptions:`. It can't express rules that
    involve two keys, such as a generator and a dtype: `gradcheck validate` checks everything.
    """
    from gradcheck_cli.spec.spec_format import tables  # late: `schema --help` shouldn't wait for it

    short_forms = tables()["short_forms"]
    definitions = {name: _plain(model, short_forms) for name, model in tables()["models"].items()}
    for definition in definitions.values():
        definition["additionalProperties"] = False
    # An op in a list may get its inputs from `defaults`; an op in its own document must name them, unless all
    # of an op type's are attrs.
    named = {"if": {"required": ["op_type", "attrs"]}, "else": {"required": ["inputs"]}}
    return {
        "$schema": DIALECT,
        "title": "gradcheck spec",
        "description": "One document of a gradcheck spec: an op, several under `ops`, or op types that "
        "have no spec under `exceptions`.",
        "type": "object",
        # Not `anyOf`: if both forms fail, an editor could only say that neither fits.
        "if": {"required": ["ops"]},
        "then": {"$ref": "#/$defs/OpsFile"},
        "else": {
            "if": {"required": ["exceptions"]},
            "then": {"$ref": "#/$defs/ExceptionsFile"},
            "else": {
                "if": {"required": ["defaults"]},
                "then": {
                    "properties": {"defaults": definitions["OpsFile"]["properties"]["defaults"]},
                    "additionalProperties": False,
                },
                "else": {"$ref": "#/$defs/OpModel", **named},
            },
        },
        "$defs": definitions,
    }


def _plain(part: Any, short_forms: Object) -> Any:  # noqa: ANN401 (a part of a JSON Schema)
    """Return a part of the format in the words of JSON Schema alone, with its short forms."""
    if isinstance(part, list):
        return [_plain(element, short_forms) for element in part]
    if not isinstance(part, dict):
        return part
    plain = {key: _plain(value, short_forms) for key, value in part.items() if key not in _OUR_WORDS}
    if "$ref" in plain:
        plain["$ref"] = f"#/$defs/{plain['$ref']}"
    if "short" not in part:
        return plain
    about = {key: plain.pop(key) for key in ("description", "examples", "default") if key in plain}
    short = short_forms.get(part["short"]) or [part["items"]]
    return {"anyOf": [plain, *_plain(short, short_forms)], **about}
