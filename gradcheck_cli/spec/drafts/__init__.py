"""Drafts of specs, and cases that are added to a spec's file."""
