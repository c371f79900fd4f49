"""Guesses which mistake is behind a wrong gradient."""

from __future__ import annotations

_GUESSING = "gradcheck_cli.features.diagnosis.diagnosing"
HOOKS = {
    "diagnose": f"{_GUESSING}:diagnose",
    "find_common_cause": f"{_GUESSING}:find_common_cause",
}
