"""Opens a case in each mode."""
