"""`gradcheck schema`: prints the spec format for editors and other programs."""

from __future__ import annotations

import json

import click


@click.command("schema", short_help="Print the JSON Schema of the spec format.")
def command() -> None:
    """Print the JSON Schema of the spec format, for an editor to complete and check specs by."""
    from gradcheck_cli.spec.schema import json_schema  # noqa: PLC0415 (`schema --help` does without)

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
