"""The baseline: what each pair was like when it was last accepted, and what has changed since."""

from __future__ import annotations

COMMANDS = {"diff": ("diff_command", "Compare two JSON reports.")}
HOOKS = {
    "run_options": "baselines:RUN_OPTIONS",
    "closing_lines": "changes_text:closing_lines",
    "fingerprints": "fingerprint:take_fingerprints",
}
