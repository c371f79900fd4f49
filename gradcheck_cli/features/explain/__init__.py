"""Says what a finding's code means, and what to do about it: `explain`."""

from __future__ import annotations

COMMANDS = {"explain": ("explain_command", "Explain a finding, and what to do.")}
