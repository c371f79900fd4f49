"""Makes one case for each mode of a case, each of which is run and reported separately."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gradcheck_cli.spec.case import Case, is_of_second_order


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
    return tuple(_in_mode(case, mode) for case in cases for mode in case.modes)


def _in_mode(case: Case, mode: str) -> Case:
    if not case.second_order or mode in case.second_order:
        return case if case.mode == mode else replace(case, mode=mode)
    rules = tuple(rule for rule in case.pairs if not is_of_second_order(rule.glob))
    return replace(case, mode=mode, second_order=(), pairs=rules)
