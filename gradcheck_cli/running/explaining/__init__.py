"""Explains a verdict while the case is open: the op to blame, and figures."""
