"""Finds the gradients of a package that passing pairs ran, from its text and from a run's records."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gradcheck_cli.coverage.gradients_in_text import CUSTOM, MODULE, Find
from gradcheck_cli.covered import CoverageStatus, GradientCoverage, WrittenGradient
from gradcheck_cli.results import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gradcheck_cli.coverage.gradients_in_text import Package
    from gradcheck_cli.coverage.importing import Imported
    from gradcheck_cli.covered import GradientRun
    from gradcheck_cli.results import CaseResult

_WRAPPER = f"{CUSTOM}.<locals>."  # in the name of what a wrapper such as TensorFlow Probability's makes
_UNREACHED = "no case reaches it"
_MADE = "a case makes it, but no pair's gradient runs it"


@dataclass
class _Evidence:
    """What a run has shown about one gradient."""

    passed: set[str] = field(default_factory=set)  # cases with a passing pair that ran it
    excused: dict[str, str] = field(
        default_factory=dict
    )  # pairs that are expected to be wrong, with the reason
    others: dict[str, str] = field(default_factory=dict)  # other pairs that ran it, and their outcome
    is_made: bool = False


def measure(
    packages: Sequence[Package],
    cases: Iterable[CaseResult],
    imported: Imported,
    excuses: Mapping[str, str],
) -> GradientCoverage:
    """Return the outcome of each gradient of some packages.

    Args:
        packages: their text, or the part of it that counts.
        cases: the results of the cases that ran.
        imported: the result of importing their modules.
        excuses: reasons why gradients needn't be covered, by the name as `module:qualname`, by the name that
            it is registered under, or by the module or a package that it is in.
    """
    finds = {find: _Evidence() for package in packages for find in package.finds}
    by_place: defaultdict[str, list[Find]] = defaultdict(list)
    for find in finds:
        for line in find.lines:
            by_place[f"{find.file}:{line}"].append(find)
    modules = {file: name for package in packages for name, file in package.modules.items()}

    def evidence(run: GradientRun) -> list[_Evidence]:
        known = _find_matching(run, by_place) or list(_find_unlisted(run, modules))
        return [finds.setdefault(one, _Evidence()) for one in known]

    for run in imported.made:
        evidence(run)
    for case in cases:
        for run in case.custom_gradients:
            for one in evidence(run):
                _weigh(case, run, one)
    unknown = {name: "isn't Python" for package in packages for name in package.unreadable}
    unknown |= imported.failures
    places = {name: file for file, name in modules.items()}
    found = [
        *(_judged(find, one, excuses) for find, one in finds.items()),
        *(_of_module(name, places.get(name, ""), why, excuses) for name, why in unknown.items()),
    ]
    ordered = sorted(found, key=lambda one: (one.file, one.line, one.name))
    return GradientCoverage(tuple(package.name for package in packages), tuple(ordered))


def _find_matching(run: GradientRun, by_place: Mapping[str, list[Find]]) -> list[Find]:
    """Return the gradients in the text that a record belongs to, by its own lines or by its callers."""
    found = [find for place in run.places for find in by_place.get(place, ())]
    if found:
        return list(dict.fromkeys(found))
    return next((by_place[place] for place in run.makers if place in by_place), [])


def _find_unlisted(run: GradientRun, modules: Mapping[str, str]) -> Iterator[Find]:
    """Yield a gradient of a package that its text doesn't show; nothing if it isn't the package's."""
    for number, place in enumerate(run.places):
        file, _, line = place.rpartition(":")
        if file not in modules or (number == 0 and _WRAPPER in run.function):
            continue
        name = run.function.rpartition(":")[2] if number == 0 else f"line {line}"
        yield Find(modules[file], name, CUSTOM, file, int(line), frozenset())
        return


def _weigh(case: CaseResult, run: GradientRun, found: _Evidence) -> None:
    found.is_made = True
    label = case.op if case.case == "default" else f"{case.op} · {case.case}"
    for pair in case.pairs:
        if pair.label not in run.pairs or not pair.connected:
            continue
        if pair.status is Status.PASSED:
            found.passed.add(label)
        elif pair.status is Status.EXPECTED_MISMATCH:
            found.excused[label] = case.reason or "expected to be wrong"
        else:
            found.others[f"{pair.label} of {label}"] = str(pair.status).replace("_", " ")


def _judged(find: Find, found: _Evidence, excuses: Mapping[str, str]) -> WrittenGradient:
    status, reason = CoverageStatus.MISSING, _MADE if found.is_made else _UNREACHED
    names = (find.target, find.registered, *_with_packages(find.module))
    excuse = next((excuses[one] for one in names if one in excuses), "")
    if found.passed:
        status, reason = CoverageStatus.COVERED, ""
    elif excuse or found.excused:
        status = CoverageStatus.EXCUSED
        reason = excuse or "; ".join(f"{label}: {why}" for label, why in sorted(found.excused.items()))
    elif found.others:
        label, became = min(found.others.items())
        reason = f"{label} ran it, and is {became}"
    return WrittenGradient(
        find.target, find.kind, find.file, find.line, status, tuple(sorted(found.passed)), reason
    )


def _of_module(name: str, file: str, why: str, excuses: Mapping[str, str]) -> WrittenGradient:
    excuse = next((excuses[one] for one in _with_packages(name) if one in excuses), "")
    status = CoverageStatus.EXCUSED if excuse else CoverageStatus.MISSING
    reason = excuse or f"can't be imported: {why}"
    return WrittenGradient(name, MODULE, file, 0, status, reason=reason)


def _with_packages(module: str) -> list[str]:
    """Return a module's name, and those of its packages."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
