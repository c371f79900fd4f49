"""Cases that are called eagerly."""
