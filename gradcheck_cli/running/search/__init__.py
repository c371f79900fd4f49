"""Search for an input at which a gradient is wrong, and shrink it."""
