"""Judges pairs: from Jacobians at a sample point to a row of the table."""
