"""Results as a page to look at: one HTML file that fetches nothing."""
