"""Describes spec documents and reports to editors and other programs: `schema`."""

from __future__ import annotations

from gradcheck_cli.hooks import Command

COMMANDS = {
    "schema": Command(
        "gradcheck_cli.features.schema.json_schema", "Print the JSON Schema of the spec format."
    )
}
