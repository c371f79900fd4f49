"""Guesses which mistake is behind a wrong gradient."""

from __future__ import annotations

_GUESSING = "gradcheck_cli.features.diagnosis.diagnosing"
FOR_CASES = (_GUESSING,)
HOOKS = {
    "diagnose": f"{_GUESSING}:diagnose",
    "add_causes": f"{_GUESSING}:add_causes",
    "order_checks": f"{_GUESSING}:put_cause_first",
}
