"""What `gradcheck list --specs` knows of a folder of specs: what is covered, excepted, missing, gone."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from gradcheck_cli.spec.coverage import Coverage, cases_by_type, coverage_of, proven
from gradcheck_cli.spec.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.spec.exceptions import Excepted
    from gradcheck_cli.tensorflow_backend.registry import GradientEntry


@dataclass(frozen=True)
class Measured:
    """Which gradients of packages a folder of specs checks.

    Attributes:
        entries: the gradients, less those that are excepted.
        left_out: those that are.
        specs: by name, the specs that check a gradient.
        failures: modules that couldn't be imported, each with the reason.
    """

    entries: tuple[GradientEntry, ...]
    left_out: tuple[GradientEntry, ...]
    specs: Mapping[str, Sequence[str]]
    failures: tuple[str, ...]

    @property
    def bare(self) -> list[GradientEntry]:
        """The gradients that no spec checks."""
        return [entry for entry in self.entries if entry.name not in self.specs]


def measure(
    folder: str,
    packages: Sequence[str],
    choose: Callable[[Sequence[GradientEntry]], list[GradientEntry]] = list,
) -> Measured:
    """Import packages, all of their modules, and see which of their gradients specs check.

    Args:
        folder: of specs.
        packages: by the names that they are imported by.
        choose: which of their gradients count.

    Raises:
        SpecError: specs with faults.
        UsageError: a package can't be imported at all.
    """
    from gradcheck_cli.running.selection.modules import modules_below  # noqa: PLC0415 (late, as below)
    from gradcheck_cli.running.session import start_tensorflow  # noqa: PLC0415

    loaded = load([folder])
    start_tensorflow()
    failures: list[str] = []
    with redirect_stdout(sys.stderr):  # what an imported module prints is no part of the list
        from gradcheck_cli.tensorflow_backend.coverage import covering, of_packages  # noqa: PLC0415
        from gradcheck_cli.tensorflow_backend.registry import read_gradients  # noqa: PLC0415

        read_gradients(packages)  # a package that can't be imported at all is bad usage
        modules = [name for package in packages for name in modules_below(package, [str(Path.cwd())])]
        # Modules first: a function has the name that it has where it is defined.
        everything = read_gradients([*modules, *packages], failures=failures)
        entries = choose(of_packages(everything, packages))
        specs = covering(entries, loaded.cases)
    excepted = {one.op_type for one in loaded.exceptions if one.holds(version("tensorflow"))} - set(specs)
    return Measured(
        tuple(entry for entry in entries if entry.name not in excepted),
        tuple(entry for entry in entries if entry.name in excepted),
        specs,
        tuple(failures),
    )


_HAS_GRADIENT = ("gradient", "custom_gradient")


@dataclass(frozen=True)
class Specs:
    """A folder of specs, as far as they are for the TensorFlow that is installed.

    Attributes:
        by_type: the cases that cover each op type.
        by_function: specs by the function that they name as forward.
        exceptions: op types that can't be checked.
        proven: op types of which a report holds a case that was right; `None` where none is asked.
    """

    by_type: dict[str, list[Case]]
    by_function: dict[str, list[str]]
    exceptions: dict[str, Excepted]
    proven: set[str] | None

    @classmethod
    def read(cls, folder: str, report: Path | None) -> Specs:
        """Read a folder of specs, and a report of running them.

        Raises:
            SpecError: specs with faults.
            UsageError: the report can't be read.
        """
        loaded = load([folder])
        tensorflow = version("tensorflow")
        by_type = cases_by_type(loaded.cases, tensorflow)
        by_function: dict[str, list[str]] = {}
        for case in loaded.cases:
            if case.forward is not None:
                by_function.setdefault(case.forward.target, []).append(case.spec)
        exceptions = {one.op_type: one for one in loaded.exceptions if one.holds(tensorflow)}
        if report is None:
            return cls(by_type, by_function, exceptions, None)
        from gradcheck_cli.reporting.json_reading import read_report  # noqa: PLC0415 (only with --report)

        return cls(by_type, by_function, exceptions, proven(by_type, read_report(report)))

    def coverage(self, entries: Iterable[GradientEntry]) -> dict[str, Coverage]:
        """Return what becomes of each entry, by its name."""
        return {entry.name: self._coverage(entry) for entry in entries}

    def _coverage(self, entry: GradientEntry) -> Coverage:
        name = entry.name
        cases, exception = self.by_type.get(name, []), self.exceptions.get(name)
        if entry.status == "gone":
            specs = [*(case.spec for case in cases), *([exception.place] if exception else [])]
            return Coverage("gone", tuple(dict.fromkeys(specs)), exception=exception)
        if entry.status not in _HAS_GRADIENT:
            return Coverage(specs=tuple(dict.fromkeys(case.spec for case in cases)))
        is_proven = self.proven is None or name in self.proven
        return coverage_of(name, cases, exception, is_proven=is_proven, specs=self.by_function.get(name, ()))

    def gone(self, entries: Sequence[GradientEntry]) -> list[GradientEntry]:
        """Return entries for the names that this TensorFlow has no gradient of.

        A raw op type that it knows, without a gradient, is none of them: a spec may show that there's none.
        """
        from gradcheck_cli.tensorflow_backend.registry import GradientEntry  # noqa: PLC0415 (TensorFlow)

        known = {entry.name for entry in entries}
        registered = {entry.name for entry in entries if entry.status in _HAS_GRADIENT}
        covers = self.by_type.items()
        explicit = {name for name, cases in covers if any(name in case.covers for case in cases)}
        named = {*(self.by_type.keys() - known), *((explicit | self.exceptions.keys()) - registered)}
        return [GradientEntry(name, "gone") for name in sorted(named)]
