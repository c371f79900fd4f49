"""The baseline: what each pair was like when it was last accepted, and what has changed since."""
