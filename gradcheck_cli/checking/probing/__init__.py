"""Judges pairs that are too large, or cost too much, for whole Jacobians."""
