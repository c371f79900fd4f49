"""The structural checks: what must hold of a gradient beside its values."""
