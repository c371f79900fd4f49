"""Reads YAML specs into frozen cases, reports every fault of every file, and draws input values."""
