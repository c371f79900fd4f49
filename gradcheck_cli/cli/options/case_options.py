"""The options that change how cases are checked, whatever their specs say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from gradcheck_cli.cli.options.configured import option_group
from gradcheck_cli.spec.words import MODES

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case, Power


def _device(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    from gradcheck_cli.spec.leaf_types import DEVICE

    if not DEVICE.fullmatch(value):
        raise click.BadParameter(f"must be a device with its number, such as GPU:0, but got '{value}'.")
    return value


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


@dataclass(frozen=True)
class CaseOptions:
    """The command line's changes to cases; `None` and empty values leave them as their specs have them."""

    seed: int | None = None
    modes: tuple[str, ...] = ()
    device: str | None = None
    power: Power | None = None
    budget: float | None = None
    require: str | None = None
    search: float | None = None

    def load(self, folders: Sequence[str]) -> tuple[Case, ...]:
        """Read the cases of specs; values are drawn from the requested seed."""
        from gradcheck_cli.spec.load import load_cases

        return load_cases(folders, seed=self.seed)

    def apply_to(self, cases: Sequence[Case]) -> tuple[Case, ...]:
        """Return cases in each of their modes, changed by these options."""
        from gradcheck_cli.spec.case import in_each_mode

        changes: dict[str, Any] = {"full_only": True} if self.require == "full" else {}
        changes |= {} if self.budget is None else {"budget": self.budget}
        changes |= {} if self.power is None else {"power": self.power}
        changes |= {} if self.search is None else {"search": self.search}
        cases = in_each_mode(cases, self.modes, self.device)
        return tuple(replace(case, **changes) for case in cases) if changes else cases


seed_option = click.option(
    "--seed", type=click.IntRange(min=0), help="Draw inputs with this seed, whatever specs say."
)
case_options = option_group(
    "changes",
    CaseOptions,
    seed_option,
    click.option(
        "--mode",
        "modes",
        multiple=True,
        type=click.Choice(MODES),
        help="Check in this mode, whatever specs say; repeatable.",
    ),
    click.option(
        "--device",
        metavar="DEVICE",
        callback=_device,
        help="Run on this device, such as GPU:0; cases are skipped if it doesn't exist.",
    ),
    click.option(
        "--power",
        metavar="SIZE:PROBABILITY",
        callback=_power,
        help="What random probes must detect: an error of this relative SIZE in one element is missed with "
        "at most this PROBABILITY. [default: 0.01:0.1]",
    ),
    click.option(
        "--budget",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="About how much processor time one case may take beyond the necessary minimum. Where single "
        "elements take longer, random probes replace them; what these can't see is inconclusive. "
        "[default: 10]",
    ),
    click.option(
        "--require",
        type=click.Choice(["full"]),
        help="full: refuse random probes; a Jacobian too large for anything else is inconclusive.",
    ),
    click.option(
        "--search",
        type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS",
        help="After the check, search each case for this long for an input at which its gradient is wrong; "
        "see `gradcheck search`.",
    ),
)
