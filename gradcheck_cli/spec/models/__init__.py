"""The spec format: which keys there are, and of what type."""
