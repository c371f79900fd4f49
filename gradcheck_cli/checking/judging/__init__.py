"""Judges pairs at one sample point: by differences, by probes, by the formula behind the declared dtype."""
