"""Checks again when a file is saved, and joins the reports of shards."""
