"""Slopes at ties, along all inputs together."""
