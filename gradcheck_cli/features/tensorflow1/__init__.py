"""Checks code of TensorFlow 1: modules that turn TensorFlow 2's behaviour off, sessions, global graphs."""

from __future__ import annotations

HOOKS = {"behaviour": "switches:BEHAVIOUR"}
