"""Decides which cases run, in which processes and for how long, and collects their results."""
