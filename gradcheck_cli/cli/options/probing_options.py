"""The options that say how much of a large Jacobian must be judged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradcheck_cli.spec.case import Case, Power

Function = TypeVar("Function", bound="Callable[..., Any]")


def _power(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> Power | None:
    """Read SIZE:PROBABILITY, both between 0 and 1; the size may be a percentage, or above 1."""
    if value is None:
        return None
    from gradcheck_cli.spec.case import Power

    size, _, miss = value.partition(":")
    try:
        power = Power(_number(size), _number(miss))
    except ValueError:
        power = Power(0.0, 0.0)
    if not (power.size > 0 and 0 < power.miss < 1):
        raise click.BadParameter(
            "must be SIZE:PROBABILITY, such as 0.01:0.05 (an error of 1 % in one element is missed with a "
            f"probability of at most 0.05), but got '{value}'."
        )
    return power


def _number(text: str) -> float:
    value = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    if value == float("inf"):
        raise ValueError(text)
    return value


def extent_options(function: Function) -> Function:
    """Add the options, for `with_extent` to read."""
    for option in (
        click.option(
            "--require",
            type=click.Choice(["full"]),
            help="full: refuse random probes; a Jacobian too large for anything else is inconclusive.",
        ),
        click.option(
            "--budget",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="Judge a case within about this long, beside what can't be done without: by random probes "
            "where element by element takes longer. What they leave unseen is inconclusive. [default: 10]",
        ),
        click.option(
            "--power",
            metavar="SIZE:PROBABILITY",
            callback=_power,
            help="What random probes must see: an error of this relative SIZE in one element is missed with "
            "at most this PROBABILITY. [default: 0.01:0.1]",
        ),
    ):
        function = option(function)
    return function


def with_extent(
    cases: Sequence[Case], power: Power | None, require: str | None, budget: float | None = None
) -> tuple[Case, ...]:
    """Return the cases as these options have them."""
    changes: dict[str, Any] = {"full_only": True} if require == "full" else {}
    if budget is not None:
        changes["budget"] = budget
    if power is not None:
        changes["power"] = power
    return tuple(replace(case, **changes) for case in cases) if changes else tuple(cases)
