"""Finds inputs at which a gradient is wrong: sides of branches that no sample point takes; `search`."""
