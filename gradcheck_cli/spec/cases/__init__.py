"""Merged ops to cases, with every rule of the format applied."""
