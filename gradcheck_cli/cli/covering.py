"""What `gradcheck list --specs` knows of a folder of specs: what is covered, excepted, missing, gone."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from gradcheck_cli.spec.coverage import Coverage, cases_by_type, coverage_of, proven
from gradcheck_cli.spec.load import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gradcheck_cli.spec.case import Case
    from gradcheck_cli.spec.exceptions import Excepted
    from gradcheck_cli.tensorflow_backend.registry import GradientEntry

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
