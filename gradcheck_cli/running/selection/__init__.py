"""Selects and orders the cases to run; never imports the code under test."""
