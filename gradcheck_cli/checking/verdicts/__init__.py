"""A pair's verdict: what all its sample points come to, against what the spec expects of it."""
