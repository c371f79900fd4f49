"""Drafts of specs: `init`."""
