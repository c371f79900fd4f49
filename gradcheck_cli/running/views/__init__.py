"""What `show`, `trace`, `blame` and `init` do with one case."""
