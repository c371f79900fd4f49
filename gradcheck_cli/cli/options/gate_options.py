"""The options that say what counts as a failure: of `run`, and as configured for pytest and in Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import click

from gradcheck_cli.cli.options.configured import ConfiguredCommand, Settings, option, settings_for, takes

if TYPE_CHECKING:
    from gradcheck_cli.reporting.codes import Ignored
    from gradcheck_cli.results import Policy


@dataclass(frozen=True)
class GateOptions:
    """What counts as a failure."""

    ignore: tuple[str, ...] = option(
        "--ignore CODE",
        None,
        "Don't count pairs that are undecided with this code: GC212, or GC2 for all; repeatable. They "
        "are listed as ignored. What is wrong or wasn't tested always counts.",
        multiple=True,
    )
    strict: bool = option("--strict", bool, "Count everything that was skipped as a failure (exit 3).")
    strict_precision: bool = option(
        "--strict-precision",
        bool,
        "Count a precision warning (right in float64, too few digits as declared) as a failure (exit 1).",
    )

    @property
    def policy(self) -> Policy:
        """The rule by which results are a failure."""
        from gradcheck_cli.results import Policy

        return Policy(self.strict, self.strict_precision)

    @cached_property
    def ignored(self) -> Ignored:
        """The codes that don't count.

        Raises:
            UsageError: there is no such code, or it can't be ignored.
        """
        from gradcheck_cli.reporting.codes import read_ignored

        return read_ignored(self.ignore)


class _Gate(ConfiguredCommand):
    """These options alone, as the environment and `[tool.gradcheck]` set them."""

    only = tuple(field.name.replace("_", "-") for field in fields(GateOptions))

    def _settings_of(self, args: Sequence[str]) -> Settings:
        return settings_for(args)


@click.command(cls=_Gate)
@click.argument("paths", nargs=-1)
@takes(GateOptions)
def _gate() -> None: ...


def configured_gate(paths: Sequence[str | os.PathLike[str]] = ()) -> GateOptions:
    """Return what counts for some specs where no command line says it.

    Args:
        paths: the specs; none for the settings of the working folder.

    Raises:
        UsageError: a setting has a bad value, or several files set options for the specs.
    """
    params = _gate.make_context("gradcheck", list(map(os.path.abspath, paths))).params
    del params["paths"]
    return GateOptions(**params)
