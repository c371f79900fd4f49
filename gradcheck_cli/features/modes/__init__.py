"""Checks in other modes than graph: `modes: [dynamic, eager, xla]`."""

from __future__ import annotations

_MODES = "gradcheck_cli.features.modes.other_modes"
HOOKS = {
    "find_mode": f"{_MODES}:find_mode",
    "works_eagerly": f"{_MODES}:works_eagerly",
    "compare_modes": "gradcheck_cli.features.modes.compare_modes:compare_modes",
}
