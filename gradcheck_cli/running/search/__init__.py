"""Searches for an input at which a gradient is wrong, and shrinks it."""
