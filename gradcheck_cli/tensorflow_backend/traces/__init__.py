"""Traces forward and vjp into graphs, and finds what is held constant in them."""
