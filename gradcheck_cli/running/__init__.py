"""Which cases, in which process, for how long."""
