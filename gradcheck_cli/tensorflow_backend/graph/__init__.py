"""Traced cases: tracing, evaluating, differentiating."""
