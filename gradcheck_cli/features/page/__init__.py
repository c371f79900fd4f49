"""Results as a page with pictures, and one Jacobian in a terminal: `--report html` and `show`."""
