"""The local processes in which cases run."""
