"""YAML to frozen cases, with every fault of every file; input values."""
