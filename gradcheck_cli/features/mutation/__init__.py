"""Corrupts gradients on purpose, to see what the checks notice."""
