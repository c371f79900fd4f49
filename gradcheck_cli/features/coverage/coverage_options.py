"""The options `--cov` and `--cov-fail-under`, and their work before and after a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gradcheck_cli.cli.options.configured import PERCENT, option
from gradcheck_cli.errors import UsageError
from gradcheck_cli.hooks import FeatureOptions, RunPart

if TYPE_CHECKING:
    from gradcheck_cli.features.coverage.gradients_in_text import Package
    from gradcheck_cli.features.coverage.measure import Importing
    from gradcheck_cli.results import Report

# Options that leave out cases. What those cases would cover is no gap in the specs.
_SELECTING = ("paths", "ops", "names", "expression", "tags", "op_types", "last_failed")


@dataclass(frozen=True)
class CoverageOptions:
    """What to measure, and how much is enough."""

    cov: tuple[str, ...] = option(
        "--cov PACKAGE",
        None,
        "Report which hand-written gradients in PACKAGE were run by a pair that passed; repeatable. With "
        "--changed, only those in files that have changed. --report json=FILE has it, too.",
        multiple=True,
    )
    cov_fail_under: float | None = option(
        "--cov-fail-under PERCENT",
        PERCENT,
        "Exit with 3 if less than this share of the gradients is covered. A limit from a file or the "
        "environment doesn't apply to a run of selected cases.",
    )
    branch_fail_under: float | None = option(
        "--branch-fail-under PERCENT",
        PERCENT,
        "Exit with 3 if checked points take less than this share of the sides of branches, over all cases in "
        "graphs. Sides under 'unreached' don't count.",
    )


@dataclass
class Coverage(RunPart):
    """What to measure in a run; nothing without `--cov`."""

    branch_fail_under: float | None
    packages: tuple[Package, ...] = ()
    importing: Importing | None = None
    excuses: Mapping[str, str] = field(default_factory=dict)
    fail_under: float | None = None
    changed: str = ""

    @classmethod
    def begin(cls, ctx: click.Context, folders: Sequence[str], options: CoverageOptions) -> Coverage:
        """Read the packages' text, and start importing their modules in parallel with the run.

        Raises:
            UsageError: there is no such package, or none for a limit on the command line.
        """
        names, changed = options.cov, ctx.params["changed"] or ""
        branch_share = _required_share(ctx, "branch_fail_under")
        if not names:
            if ctx.get_parameter_source("cov_fail_under") is ParameterSource.COMMANDLINE:
                raise UsageError("--cov-fail-under goes with --cov PACKAGE.")
            return cls(branch_share)
        # Late imports: most runs don't need them.
        from gradcheck_cli.features.coverage.gradients_in_text import read_package
        from gradcheck_cli.features.coverage.measure import Importing
        from gradcheck_cli.spec.load import load

        specs = map(Path, folders)
        beside = [str((path if path.is_dir() else path.parent).resolve()) for path in specs]
        places = [str(Path.cwd()), *beside]
        packages = tuple(read_package(name, places) for name in names)
        if changed:
            from gradcheck_cli.running.changed import changed_files

            files = changed_files(changed)
            packages = tuple(package.within(files) for package in packages)
        importing = Importing([module for package in packages for module in package.paths], places)
        excuses = {
            exception.op_type: f"{exception.kind}: {exception.reason}"
            for exception in load(list(folders)).exceptions
        }
        share = _required_share(ctx, "cov_fail_under")
        return cls(branch_share, packages, importing, excuses, share, changed)

    def add_to(self, report: Report) -> Report:
        """Return a report with the coverage of its cases."""
        report = replace(report, policy=replace(report.policy, branch_fail_under=self.branch_fail_under))
        if self.importing is None:
            return report
        from gradcheck_cli.features.coverage.measure import measure

        coverage = measure(self.packages, report.cases, self.importing.result(), self.excuses)
        return replace(report, coverage=replace(coverage, fail_under=self.fail_under, changed=self.changed))


def _required_share(ctx: click.Context, option: str) -> float | None:
    """Return the share that is required; none if cases are selected, unless the command line states it."""
    value: float | None = ctx.params[option]
    if value is None or ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE:
        return value
    if any(ctx.params[name] for name in _SELECTING):
        message = f"--{option.replace('_', '-')}: only some cases were selected, so it doesn't apply"
        click.echo(message, err=True)
        return None
    return value


RUN_OPTIONS = FeatureOptions("What is covered", CoverageOptions, Coverage.begin)
