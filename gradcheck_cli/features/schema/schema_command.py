"""`gradcheck schema`: prints the spec format, or that of the JSON report, for editors and other programs."""

from __future__ import annotations

import json

import click


@click.command("schema", short_help="Print the JSON Schema of the spec format.")
@click.option(
    "--report", "is_report", is_flag=True, help="Print that of the JSON report (run --report json=FILE)."
)
def command(*, is_report: bool) -> None:
    """Print the JSON Schema of the spec format, with which an editor completes and checks specs."""
    # A late import: `schema --help` doesn't need it.
    if is_report:
        from gradcheck_cli.features.schema.json_schema import report_schema

        schema = report_schema()
    else:
        from gradcheck_cli.features.schema.json_schema import json_schema

        schema = json_schema()
    click.echo(json.dumps(schema, indent=2, ensure_ascii=False))
