"""Writes results for terminals and files; computes nothing."""
