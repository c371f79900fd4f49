"""Writes docs/spec.md, the reference of the spec format, from the format by way of its JSON Schema.

python -m tests.acceptance.spec_page
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from gradcheck_cli.features.schema.json_schema import json_schema

PAGE = Path(__file__).parents[2] / "docs" / "spec.md"

OPENING = """\
# Every key of a spec

<!-- written by tests/acceptance/spec_page.py from spec/format.yaml; a test compares it -->

A spec is a YAML document for each op. Several ops in one file are separated by `---`, or listed under `ops:`
beside `defaults:`. `gradcheck schema` prints the same as a JSON Schema, and `gradcheck validate` lists every
fault of every file at once. YAML is read by its 1.2 core rules: `1e-6` is a number, and `no` is text.
Modules are also searched in the folder of the spec and in the working directory.

If a folder has a `defaults.yaml` with nothing but `defaults:`, these are merged under each spec there.

A case inherits keys from its op; an op inherits from `defaults`. Mappings are merged
key by key; anything else is replaced. A list of a single word may be the word: `dtypes: float64`.
"""

# Each model with its heading and its introduction; empty for the model's own description.
SECTIONS = (
    (
        "OpModel",
        "An op",
        (
            "Names, functions and expectations. All keys except `op`, `forward`, `op_type`, `gradient`, "
            "`binding` and `cases` may also be used in a case."
        ),
    ),
    (
        "CaseModel",
        "A case",
        (
            "Further cases of the op, under `cases`. Besides `name`, a case may have every key of an op but "
            "those named there."
        ),
    ),
    (
        "InputModel",
        "An input",
        (
            "The value of a name in `inputs`. Without a generator, values are standard normal, "
            "integers from 0 to 9, or fair booleans. A list of inputs is a list argument."
        ),
    ),
    ("Uniform", "`uniform`", ""),
    ("Normal", "`normal`", ""),
    ("Integers", "`integers`", ""),
    ("Domain", "`domain`", ""),
    ("Sparse", "`sparse`", ""),
    ("Ragged", "`ragged`", ""),
    ("OutputModel", "An output", "The value of a name in `outputs`, if that is a mapping."),
    (
        "PairModel",
        "A pair",
        (
            "The expectation for the pairs that a key of `pairs` matches: a label such as `dy/dx`, "
            "or a pattern such as `dy*/dx`."
        ),
    ),
    ("ToleranceModel", "`tolerance`", ""),
    ("NondeterminismModel", "`nondeterminism`", ""),
    (
        "ChecksModel",
        "`checks`",
        (
            "All are on; `false` turns one off, which the baseline records. "
            "[Why did my gradient fail](why.md) explains each."
        ),
    ),
    ("OpsFile", "Several ops in one document", "Ops and their shared keys."),
    (
        "ExceptionsFile",
        "What has no spec",
        "Op types that can't be checked, with the reason, in a separate document.",
    ),
    ("ExceptionModel", "An exception", ""),
    ("MismatchModel", "A known mismatch", ""),
    ("NumpyFunction", "A NumPy function", ""),
    ("PowerModel", "`power`", ""),
    ("VariableModel", "Variables by name", ""),
)
# Models that are parts of others, or share their keys: those that they are linked to.
PARTS = {"Defaults": "OpModel", "CaseKeys": "CaseModel"}
ONLY = {"CaseModel": ("name",)}
# An op begins with its own keys; the models begin with the keys that ops and cases share.
FIRST = ("op", "description", "module", "forward", "op_type", "gradient", "binding", "inputs", "cases")
TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true`, `false`",
    "null": "nothing",
    "array": "list",
    "object": "mapping",
}


def page() -> str:
    """Return the whole page."""
    definitions = json_schema()["$defs"]
    shown = {name for name, _, _ in SECTIONS}
    known = [
        name
        for name in definitions
        if name not in shown and name not in PARTS and "properties" in definitions[name]
    ]
    sections = [*SECTIONS, *((name, f"`{name}`", "") for name in known)]
    return OPENING + "".join(_section(definitions, *section) for section in sections)


def _section(definitions: dict[str, Any], name: str, heading: str, words: str) -> str:
    model = definitions[name]
    needed = model.get("required", [])
    lines = [f"\n## {heading}\n", words or model.get("description", ""), ""]
    lines += ["| key | value | default | what |", "|---|---|---|---|"]
    fields = model["properties"]
    for key in [*(key for key in FIRST if key in fields), *(key for key in fields if key not in FIRST)]:
        field = fields[key]
        if key not in ONLY.get(name, (key,)):
            continue
        default = "needed" if key in needed else _default(field)
        lines.append(f"| `{key}` | {_kind(field)} | {default} | {_what(field)} |")
    return "\n".join(lines) + "\n"


def _default(field: dict[str, Any]) -> str:
    return f"`{_flow(field['default'])}`" if "default" in field else ""


def _what(field: dict[str, Any]) -> str:
    examples = ", ".join(f"`{_flow(example)}`" for example in field.get("examples", []))
    words = field.get("description", "").replace("|", "\\|").replace("*", "\\*")
    return f"{words} Such as {examples}".strip() if examples else words


def _kind(field: dict[str, Any]) -> str:
    """Say in words what values a schema takes."""
    if "$ref" in field:
        return _linked(field["$ref"].rsplit("/", 1)[-1])
    if "enum" in field or "const" in field:
        return ", ".join(f"`{_flow(one)}`" for one in field.get("enum", [field.get("const")]))
    for several in ("anyOf", "oneOf"):
        if several in field:
            kinds = [_kind(part) for part in field[several] if part != {"type": "null"}]
            return " or ".join(dict.fromkeys(kinds))
    kind = field.get("type")
    if kind == "array":
        return f"list of {_kind(field['items'])}" if field.get("items") else "list"
    if kind == "object":
        parts = [part for part in field.get("patternProperties", {}).values() if isinstance(part, dict)]
        extra = field.get("additionalProperties")
        parts += [extra] if isinstance(extra, dict) and extra else []
        return f"names to {_kind(parts[0])}" if parts else "mapping"
    several_kinds = kind if isinstance(kind, list) else [kind]
    return " or ".join(TYPES.get(str(one), "anything") for one in several_kinds)


def _linked(name: str) -> str:
    name = PARTS.get(name, name)
    for model, heading, _ in SECTIONS:
        if model == name:
            return f"[{heading.strip('`').lower()}](#{heading.strip('`').lower().replace(' ', '-')})"
    return f"[{name}](#{name.lower()})"


def _flow(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip().replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
