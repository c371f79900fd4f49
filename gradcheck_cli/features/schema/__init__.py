"""Describes spec documents and reports to editors and other programs: `schema`."""

from __future__ import annotations

COMMANDS = {"schema": ("json_schema", "Print the JSON Schema of the spec format.")}
