"""Processes on this machine in which cases run."""
