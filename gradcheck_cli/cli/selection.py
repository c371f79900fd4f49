"""Which of the cases that specs hold a command line asks for."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from gradcheck_cli.errors import NoSpecsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.spec.case import Case


def select_cases(cases: Sequence[Case], names: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases whose name is among `names`; all of them if `names` is empty.

    Raises:
        NoSpecsError: a name matches no case, even where another one does: nothing asked for is left out
            in silence.
    """
    known = list(dict.fromkeys(case.name for case in cases))
    missing = [name for name in names if name not in known]
    if missing:
        raise NoSpecsError("\n".join(f"no case is named '{name}'.{meant(name, known)}" for name in missing))
    return tuple(case for case in cases if not names or case.name in names)


def meant(name: str, known: Sequence[str]) -> str:
    """Return ` Did you mean 'x'?`, or, where nothing is near, the first names there are."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f" Did you mean '{close[0]}'?"
    shown = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")  # noqa: PLR2004 (a line's worth)
    return f" There are: {shown}." if known else ""
