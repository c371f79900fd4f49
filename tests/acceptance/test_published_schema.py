"""The published JSON Schema: what the command prints, every field explained, every shipped spec accepted."""

import json
import re
import subprocess
import sys

import pytest

from gradcheck_cli.features.schema.json_schema import json_schema
from tests.support.processes import ROOT

pytestmark = pytest.mark.once

PUBLISHED = ROOT / "docs" / "spec.schema.json"


def check_jsonschema(*files):
    return subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--schemafile", PUBLISHED, *files],
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_is_what_the_command_prints():
    """Else: `gradcheck schema > docs/spec.schema.json`."""
    assert json.loads(PUBLISHED.read_text()) == json_schema()


def test_every_field_has_a_description_and_an_example_or_a_default():
    bare = []

    def look(node, place):
        if isinstance(node, dict):
            for name, field in node.get("properties", {}).items():
                if "description" not in field:
                    bare.append(f"{place}.{name}: no description")
                if not {"examples", "default", "enum", "const"} & set(field):
                    bare.append(f"{place}.{name}: no example")
            for key, part in node.items():
                look(part, f"{place}.{key}")
        elif isinstance(node, list):
            for part in node:
                look(part, place)

    look(json_schema(), "")
    assert bare == []


def test_check_jsonschema_accepts_every_shipped_spec(tmp_path):
    """Document by document: check-jsonschema reads one of a file."""
    documents = []
    for file in sorted((ROOT / "specs").rglob("*.yaml")):
        for number, text in enumerate(re.split(r"^---\s*$", file.read_text(), flags=re.MULTILINE)):
            if re.search(r"^\w", text, re.MULTILINE):
                documents.append(tmp_path / f"{file.parent.name}-{file.stem}-{number}.yaml")
                documents[-1].write_text(text)
    assert len(documents) > 50
    done = check_jsonschema(*documents)
    assert done.returncode == 0, done.stdout
