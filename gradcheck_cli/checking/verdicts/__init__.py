"""A pair's verdict: the summary of all its sample points, compared with the spec's expectation."""
