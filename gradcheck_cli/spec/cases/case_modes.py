"""Makes one case for each mode of a case, each of which is run and reported separately."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gradcheck_cli.spec.case import Case


def in_each_mode(
    cases: Iterable[Case], modes: Sequence[str] = (), device: str | None = None
) -> tuple[Case, ...]:
    """Return each case once for each of its modes, in the order in which the spec names them.

    Args:
        modes: replace the specs' own, if there are any; a mode named twice counts once.
        device: replaces the specs' own.
    """
    replacements = tuple(dict.fromkeys(modes))
    if replacements or device is not None:
        cases = [
            replace(case, modes=replacements or case.modes, device=device or case.device) for case in cases
        ]
    return tuple(
        case if case.modes == (case.mode,) else replace(case, mode=mode)
        for case in cases
        for mode in case.modes
    )
