"""The JSON Schema of a spec document, for editors and tools; made from the models, so that it can't drift."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from pydantic.json_schema import models_json_schema

from gradcheck_cli.spec.models.document_model import Defaults, ExceptionsFile, OpModel, OpsFile
from gradcheck_cli.spec.words import DTYPE_KINDS, EXCEPTIONS, LISTS_OF_WORDS, PAIR_EXPECTATIONS, TWO_NUMBERS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of one spec document.

    It describes each form: one op, `ops:` beside `defaults:`, or `exceptions:`. It can't express rules that
    involve two keys, such as a generator and a dtype: `gradcheck validate` checks everything.
    """
    references, schema = models_json_schema(
        [(model, "validation") for model in (OpModel, OpsFile, Defaults, ExceptionsFile)],
        ref_template="#/$defs/{model}",
    )
    definitions = {name: _tidy(definition) for name, definition in schema["$defs"].items()}
    case = definitions["CaseModel"]
    properties = {key: subschema for key, subschema in case["properties"].items() if key != "name"}
    definitions["NamedCase"] = {
        **case,
        "properties": deepcopy(properties),
        "description": "A case under its name.",
    }
    definitions["NamedCase"].pop("required", None)
    for definition in definitions.values():
        _allow_short_forms(definition.get("properties", {}), definitions)
    exceptions = definitions["ExceptionsFile"]["properties"]["exceptions"]
    reason, version = (definitions["ExceptionModel"]["properties"][key] for key in ("reason", "tensorflow"))
    short = [_keyed_by(kind, reason, {"tensorflow": version}) for kind in EXCEPTIONS]
    exceptions["additionalProperties"] = {"anyOf": [exceptions["additionalProperties"], *short]}
    # An op in a list may get its inputs from `defaults`; an op in its own document must name them, unless all
    # of an op type's are attrs.
    named = {"if": {"required": ["op_type", "attrs"]}, "else": {"required": ["inputs"]}}
    entry = references[OpModel, "validation"]
    return {
        "$schema": DIALECT,
        "title": "gradcheck spec",
        "description": "One document of a gradcheck spec: an op, several under `ops`, or op types that "
        "have no spec under `exceptions`.",
        "type": "object",
        # Not `anyOf`: if both forms fail, an editor could only say that neither fits.
        "if": {"required": ["ops"]},
        "then": references[OpsFile, "validation"],
        "else": {
            "if": {"required": ["exceptions"]},
            "then": references[ExceptionsFile, "validation"],
            "else": {
                "if": {"required": ["defaults"]},
                "then": {
                    "properties": {"defaults": definitions["OpsFile"]["properties"]["defaults"]},
                    "additionalProperties": False,
                },
                "else": {**entry, **named},
            },
        },
        "$defs": definitions,
    }


_SHAPE = {"type": "array", "items": {"type": "integer", "minimum": 0}}


def _allow_short_forms(properties: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Allow the short forms that `short_forms` expands before a model sees them."""
    for key in ("inputs", "dict", "fields"):
        for names, forms in properties.get(key, {}).get("patternProperties", {}).items():
            properties[key]["patternProperties"][names] = _input_forms(forms)
    _allow_other_lists(properties)
    for key in ("tuple", "list"):
        if "items" in properties.get(key, {}):
            properties[key]["items"] = _input_forms(properties[key]["items"])
    if "pairs" in properties:
        _allow_short_rules(properties["pairs"], definitions)
    if "cases" in properties:
        _allow_named_cases(properties["cases"])
    for sets in properties.get("case_sets", {}).get("patternProperties", {}).values():
        _allow_named_cases(sets)


def _allow_short_rules(pairs: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Allow a word, a word with its reason, and the kind of a mismatch beside the other keys of a pair."""
    own = {
        key: subschema for key, subschema in definitions["PairModel"]["properties"].items() if key != "expect"
    }
    bounds = {key: subschema for key, subschema in own.items() if key != "reason"}
    words = [word for word in PAIR_EXPECTATIONS if word != "mismatch"]
    short = [_keyed_by(word, own["reason"], bounds) for word in words]
    short.append(_keyed_by("mismatch", definitions["MismatchModel"]["properties"]["mismatch"], own))
    word = {"enum": list(PAIR_EXPECTATIONS)}
    pairs["additionalProperties"] = {"anyOf": [pairs["additionalProperties"], word, *short]}


def _keyed_by(word: str, value: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a mapping keyed by a word."""
    properties = {word: value, **others}
    return {"type": "object", "properties": properties, "required": [word], "additionalProperties": False}


def _allow_other_lists(properties: dict[str, Any]) -> None:
    """Allow the kinds of dtypes, a word in the place of a list, and a list of two numbers."""
    if "dtypes" in properties:
        dtypes = properties["dtypes"]["items"]
        properties["dtypes"]["items"] = {**dtypes, "enum": [*dtypes["enum"], *DTYPE_KINDS]}
    for key in LISTS_OF_WORDS:
        _allow_single_word(properties.get(key, {}))
    for key in TWO_NUMBERS:
        if "$ref" in properties.get(key, {}):
            pair = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
            properties[key]["anyOf"] = [{"$ref": properties[key].pop("$ref")}, pair]


def _allow_single_word(words: dict[str, Any]) -> None:
    """Allow a word in the place of a list of words."""
    if words.get("type") == "array":
        listed = {key: words.pop(key) for key in ("type", "items", "minItems") if key in words}
        words["anyOf"] = [listed, listed["items"]]


def _input_forms(forms: dict[str, Any]) -> dict[str, Any]:
    listed = {"type": "array", "minItems": 1, "items": {"anyOf": [{"$ref": "#/$defs/InputModel"}, _SHAPE]}}
    own = [form for form in forms.get("oneOf", [forms]) if form.get("type") != "array"]
    return {"anyOf": [*own, listed, _SHAPE]}


def _allow_named_cases(cases: dict[str, Any]) -> None:
    listed = {"type": cases.pop("type"), "items": cases.pop("items")}
    named = {"anyOf": [{"$ref": "#/$defs/NamedCase"}, {"type": "null"}]}
    cases["anyOf"] = [listed, {"type": "object", "additionalProperties": named}]


def _tidy(schema: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return a schema without the nulls that represent absent keys, and without pydantic's titles."""
    if isinstance(schema, list):
        return [_tidy(subschema) for subschema in schema]
    if not isinstance(schema, dict):
        return schema
    tidy = {key: _tidy(subschema) for key, subschema in schema.items() if not _is_noise(key, subschema)}
    if isinstance(tidy.get("properties"), dict):
        # Only a key's own null means that it is absent: unknown dimensions and bare input names are real.
        tidy["properties"] = {key: _without_null(subschema) for key, subschema in tidy["properties"].items()}
    return tidy


def _is_noise(key: str, subschema: object) -> bool:
    return (key == "title" and isinstance(subschema, str)) or (key == "default" and subschema is None)


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == len(schema.get("anyOf", [])):
        return schema
    rest = {key: subschema for key, subschema in schema.items() if key != "anyOf"}
    return {**options[0], **rest} if len(options) == 1 else {**rest, "anyOf": options}
