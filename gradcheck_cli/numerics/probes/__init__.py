"""Random probes of large Jacobians."""
