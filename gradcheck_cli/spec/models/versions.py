"""Versions of TensorFlow as a spec names them: specifiers of PEP 440."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case


def is_specifier(value: object) -> bool:
    """Tell whether a value is text that names versions, such as `>=2.18`."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return isinstance(value, str) and len(SpecifierSet(value)) > 0
    except InvalidSpecifier:
        return False


def matches(version: str, specifier: str) -> bool:
    """Tell whether a version is among those that a specifier names; an empty one names all.

    A pre-release counts as the release it precedes: 2.22.0rc1 is among `>=2.22`, as its op types are.
    """
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    return SpecifierSet(specifier).contains(Version(version).base_version)


def cases_by_type(cases: Iterable[Case], version: str) -> dict[str, list[Case]]:
    """Return the cases that cover each op type, among those for a version of TensorFlow.

    A case covers the op types of its `covers`, and a raw `op_type` itself.
    """
    by_type: dict[str, list[Case]] = {}
    for case in cases:
        if not matches(version, case.tensorflow):
            continue
        own = (str(case.op_type),) if case.is_raw_op else ()
        for op_type in dict.fromkeys((*own, *case.covers)):
            by_type.setdefault(op_type, []).append(case)
    return by_type
