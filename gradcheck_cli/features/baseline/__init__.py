"""The baseline: what each pair was like when it was last accepted, and what has changed since."""

from __future__ import annotations

from gradcheck_cli.hooks import Command

_ROOM = "gradcheck_cli.features.baseline"
COMMANDS = {"diff": Command(f"{_ROOM}.diff_command", "Compare two JSON reports.")}
HOOKS = {
    "run_options": f"{_ROOM}.baselines:RUN_OPTIONS",
    "closing_lines": f"{_ROOM}.changes_text:closing_lines",
    "fingerprints": f"{_ROOM}.fingerprint:take_fingerprints",
}
