"""Options that several commands share, or that take more than a declaration."""
