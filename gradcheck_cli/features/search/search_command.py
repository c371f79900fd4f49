"""`gradcheck search`: `run` with a search of each case for an input at which its gradient is wrong."""

from __future__ import annotations

import copy

import click

from gradcheck_cli.cli.commands.run import command as run
from gradcheck_cli.cli.options.configured import RunCommand

DEFAULT_SECONDS = 30.0


def _own(parameter: click.Parameter) -> click.Parameter:
    """Return a parameter of `run` as that of `search`."""
    own = copy.copy(parameter)
    if own.name == "paths":
        own.required, own.metavar = True, "SPEC..."
    if isinstance(own, click.Option) and own.name == "search":
        own.opts, own.default, own.show_default = ["--seconds", *own.opts], DEFAULT_SECONDS, True
    return own


class _SearchCommand(RunCommand):
    """`search`, which takes the settings of `run`."""

    def _keys(self) -> dict[str, click.Option]:
        keys = super()._keys()
        return {"search": keys.pop("seconds"), **keys}


command = _SearchCommand(
    "search",
    params=[_own(parameter) for parameter in run.params],
    callback=run.callback,
    help="""Check the cases of SPEC, and search each for an input at which its gradient is wrong.

    Thousands of points are tried: as the spec draws them, from wider and narrower distributions, with zeros,
    ties and ends of ranges, and on and beside the numbers in the code. At each point, gradient and
    differences are compared along one random direction. A suspicious point is judged as `run` judges it,
    and then shrunk. Stated ranges are never left.

    All options of `run` are options of this: it is `run --search 30`.
    """,
)
