"""Traces forward and vjp into graphs, with what they hold still."""
