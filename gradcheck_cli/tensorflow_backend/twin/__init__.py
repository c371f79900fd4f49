"""The float64 twin of a traced graph."""
