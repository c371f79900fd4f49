"""Which of the cases that specs hold a command line asks for by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradcheck_cli.running.selection.choose import Wanted, choose, meant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.spec.case import Case

__all__ = ["meant", "select_cases"]


def select_cases(cases: Sequence[Case], names: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases whose name is among `names`; all of them if `names` is empty.

    Raises:
        NoSpecsError: a name matches no case, even where another one does: nothing asked for is left out
            in silence.
    """
    return choose(cases, Wanted(names=names))
