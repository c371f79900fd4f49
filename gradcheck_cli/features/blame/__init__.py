"""Finds the op whose own gradient is wrong: `blame`, and `trace`, which prints a backward pass op by op."""
