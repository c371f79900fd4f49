"""Drafts of specs."""
