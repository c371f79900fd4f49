"""Which gradients some spec checks: by the functions that specs name, under whatever name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import loading
from gradcheck_cli.tensorflow_backend.registry import where

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.tensorflow_backend.registry import GradientEntry

HAS_GRADIENT = ("gradient", "custom_gradient")


def of_packages(entries: Iterable[GradientEntry], packages: Sequence[str]) -> tuple[GradientEntry, ...]:
    """Return the entries that are gradients, and whose function a package defines itself.

    Args:
        entries: what there is.
        packages: dotted names; empty for whatever comes with TensorFlow.
    """
    found = (entry for entry in entries if entry.status in HAS_GRADIENT)
    if not packages:
        return tuple(entry for entry in found if entry.origin == "tensorflow")
    return tuple(entry for entry in found if _is_within(entry.function.partition(":")[0], packages))


def _is_within(module: str, packages: Sequence[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def covering(entries: Sequence[GradientEntry], cases: Iterable[Case]) -> dict[str, list[str]]:
    """Return the specs that check each gradient, by the entry's name.

    A spec checks the gradients of the op types that it covers, of the one that it names, unless it puts
    another in its place, and the functions that it names: an import under another name is the same
    function. What its forward calls is not looked into.

    Args:
        entries: the gradients.
        cases: the specs' cases; modules that they name are imported.
    """
    by_function = {entry.function: entry.name for entry in entries if entry.function}
    by_name = {entry.name for entry in entries}
    found: dict[str, list[str]] = {}
    for case in cases:
        names = {*case.covers, *(by_function.get(function) for function in _functions(case))}
        if case.forward is None and case.gradient is None:
            names.add(case.op_type)
        for name in names & by_name:
            if case.spec not in found.setdefault(str(name), []):
                found[str(name)].append(case.spec)
    return found


def _functions(case: Case) -> set[str]:
    """Return the functions that a case names, as `module:qualname` of where each is defined."""
    found = set()
    for reference in (case.forward, case.gradient):
        if reference is None:
            continue
        found.add(reference.target)
        try:
            with loading.importable(case.folder):
                found.add(where(loading.load(reference.target, "forward"))[0])
        except (
            CaseFailedError,
            SystemExit,
        ):  # a spec that can't run covers what it names, and says so itself
            continue
    return found
