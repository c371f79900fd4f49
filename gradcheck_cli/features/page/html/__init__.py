"""Results as one HTML file that loads nothing from elsewhere."""
