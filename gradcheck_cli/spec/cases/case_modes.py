"""Cases to one case for each mode that they are checked in, each of which is run and reported on its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gradcheck_cli.spec.case import Case


def in_each_mode(
    cases: Iterable[Case], modes: Sequence[str] = (), device: str | None = None
) -> tuple[Case, ...]:
    """Return each case once for each of its modes, in the order in which the spec names them.

    Args:
        cases: as they were read.
        modes: in place of the specs' own, if there are any; what is named twice counts once.
        device: in place of the specs' own.
    """
    asked = tuple(dict.fromkeys(modes))
    if asked or device is not None:
        cases = [replace(case, modes=asked or case.modes, device=device or case.device) for case in cases]
    return tuple(
        case if case.modes == (case.mode,) else replace(case, mode=mode)
        for case in cases
        for mode in case.modes
    )
