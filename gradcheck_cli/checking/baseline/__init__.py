"""What a baseline remembers of a pair beside its verdict."""
