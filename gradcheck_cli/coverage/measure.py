"""Finds the gradients of a package that passing pairs ran, from its text and from a run's records."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
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


class _Known:
    """The gradients of some packages: those in the text, and those that a run made; with their evidence.

    Attributes:
        modules: the packages' modules, by file.
    """

    def __init__(self, packages: Sequence[Package]) -> None:
        self.modules = {file: name for package in packages for name, file in package.modules.items()}
        self._finds = {find: _Evidence() for package in packages for find in package.finds}
        self._by_place: defaultdict[str, list[Find]] = defaultdict(list)
        for find in self._finds:
            for line in find.lines:
                self._by_place[f"{find.file}:{line}"].append(find)
        # Gradients of one text that close over different functions, such as those of a factory.
        self._variants: defaultdict[Find, dict[Find, _Evidence]] = defaultdict(dict)

    def evidence(self, run: GradientRun) -> list[_Evidence]:
        """Return where to note what a record says: at each gradient that it belongs to."""
        found = dict.fromkeys(find for place in run.places for find in self._by_place.get(place, ()))
        if not found:
            # A helper's call makes the gradients of the functions that it is given: each counts.
            makers = next((self._by_place[place] for place in run.makers if place in self._by_place), [])
            found = dict.fromkeys([*_find_unlisted(run, self.modules), *makers])
            return [self._finds.setdefault(one, _Evidence()) for one in found]
        evidence = [self._finds[one] for one in found]
        if len(found) == 1:
            (find,) = found
            variant = _variant_of(find, run, self.modules)
            evidence.append(self._variants[find].setdefault(variant, _Evidence()))
        return evidence

    def all(self) -> dict[Find, _Evidence]:
        """Return all gradients; several variants of one text count one by one."""
        several = (variants for variants in self._variants.values() if len(variants) > 1)
        return self._finds | {find: one for variants in several for find, one in variants.items()}


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
    known = _Known(packages)
    for run in imported.made:
        known.evidence(run)
    for case in cases:
        for run in case.custom_gradients:
            for one in known.evidence(run):
                _weigh(case, run, one)
    unknown = {name: "isn't Python" for package in packages for name in package.unreadable}
    unknown |= imported.failures
    places = {name: file for file, name in known.modules.items()}
    found = [
        *(_judged(find, one, excuses) for find, one in known.all().items()),
        *(_of_module(name, places.get(name, ""), why, excuses) for name, why in unknown.items()),
    ]
    ordered = sorted(found, key=lambda one: (one.file, one.line, one.name))
    return GradientCoverage(tuple(package.name for package in packages), tuple(ordered))


def _variant_of(find: Find, run: GradientRun, modules: Mapping[str, str]) -> Find:
    """Return a gradient as one of several with the same text: they close over different functions."""
    places = [place.rpartition(":") for place in run.places]
    lines = sorted(
        int(line)
        for file, _, line in places
        if file in modules and not (file == find.file and int(line) in find.lines)
    )
    if not lines:
        return find
    told = f" with {'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines))}"
    return replace(find, name=find.name + told, line=lines[0])


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
