"""Guesses which mistake is behind a wrong gradient."""

from __future__ import annotations

HOOKS = {"diagnose": "diagnosing:diagnose", "find_common_cause": "diagnosing:find_common_cause"}
