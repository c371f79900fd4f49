"""The options `--cov`, `--cov-report` and `--cov-fail-under`, and their work before and after a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from gradcheck_cli.cli.options.running_options import ReportTarget, write_file
from gradcheck_cli.hooks import FeatureOptions, RunPart

if TYPE_CHECKING:
    from rich.text import Text

    from gradcheck_cli.features.coverage.gradients_in_text import Package
    from gradcheck_cli.features.coverage.measure import Importing
    from gradcheck_cli.results import Report

TERM = "term-missing"
_FILES = {"json": "gradcheck-cov.json", "markdown": "gradcheck-cov.md"}
_FORMS = f"{TERM}, json[:FILE] or markdown[:FILE]"
# Options that leave out cases. What those cases would cover is no gap in the specs.
_SELECTING = ("paths", "ops", "names", "expression", "tags", "op_types", "last_failed")


def _read_report(value: str) -> ReportTarget:
    """Read `KIND` or `KIND:FILE`."""
    kind, separator, name = value.partition(":")
    if kind not in (TERM, *_FILES) or (kind == TERM and separator) or (separator and not name):
        raise click.BadParameter(f"must be {_FORMS}, but got '{value}'.")
    return ReportTarget(kind, None if kind == TERM else Path(name or _FILES[kind]), ":")


@dataclass(frozen=True)
class CoverageOptions:
    """What to measure, how to report it, and how much is enough."""

    cov: tuple[str, ...]
    cov_report: tuple[ReportTarget, ...]
    cov_fail_under: float | None
    branch_fail_under: float | None


_OPTIONS = (
    click.option(
        "--cov",
        multiple=True,
        metavar="PACKAGE",
        help="Report which hand-written gradients in PACKAGE were run by a pair that passed; repeatable. "
        "With --changed, only those in files that have changed.",
    ),
    click.option(
        "--cov-report",
        multiple=True,
        metavar="KIND[:FILE]",
        type=_read_report,
        help=f"What to report besides the counts: {_FORMS}; repeatable. {TERM} names what isn't covered.",
    ),
    click.option(
        "--cov-fail-under",
        type=click.FloatRange(0, 100),
        metavar="PERCENT",
        help="Exit with 3 if less than this share of the gradients is covered. A limit from a file or the "
        "environment doesn't apply to a run of selected cases.",
    ),
    click.option(
        "--branch-fail-under",
        type=click.FloatRange(0, 100),
        metavar="PERCENT",
        help="Exit with 3 if checked points take less than this share of the sides of branches, over all "
        "cases in graphs. Sides under 'unreached' don't count.",
    ),
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
    reports: Sequence[ReportTarget] = ()

    @classmethod
    def begin(cls, ctx: click.Context, folders: Sequence[str], options: CoverageOptions) -> Coverage:
        """Read the packages' text, and start importing their modules in parallel with the run.

        Raises:
            UsageError: there is no such package.
        """
        names, changed = options.cov, ctx.params["changed"] or ""
        branch_share = _required_share(ctx, "branch_fail_under")
        if not names:
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
        return cls(branch_share, packages, importing, excuses, share, changed, options.cov_report)

    def add_to(self, report: Report) -> Report:
        """Return a report with the coverage of its cases."""
        report = replace(report, policy=replace(report.policy, branch_fail_under=self.branch_fail_under))
        if self.importing is None:
            return report
        from gradcheck_cli.features.coverage.measure import measure

        coverage = measure(self.packages, report.cases, self.importing.result(), self.excuses)
        return replace(report, coverage=replace(coverage, fail_under=self.fail_under, changed=self.changed))

    def __post_init__(self) -> None:
        """Say whether a file is written at the end."""
        self.writes = any(report.file is not None for report in self.reports)

    def lines(self, report: Report, width: int) -> Sequence[Text]:
        """Name the gradients that aren't covered, if requested and not named anyway."""
        from gradcheck_cli.features.coverage.measure import missing_lines

        coverage, is_asked = report.coverage, any(target.kind == TERM for target in self.reports)
        return missing_lines(coverage, width) if coverage and is_asked and not coverage.falls_short else ()

    def write(self, report: Report) -> int:
        """Write the requested files, report failures, and return the exit code for them."""
        from gradcheck_cli.features.coverage.measure import coverage_json, coverage_markdown

        coverage = report.coverage
        if coverage is None:
            return 0
        texts = {"json": coverage_json, "markdown": coverage_markdown}
        files = [(target.kind, target.file) for target in self.reports if target.file is not None]
        return max((write_file(file, partial(texts[kind], coverage)) for kind, file in files), default=0)


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


RUN_OPTIONS = FeatureOptions("What is covered", CoverageOptions, _OPTIONS, Coverage.begin)
