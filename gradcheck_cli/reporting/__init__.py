"""Results to terminal and JSON; computes nothing."""
