"""Finds the op whose own gradient is wrong."""
