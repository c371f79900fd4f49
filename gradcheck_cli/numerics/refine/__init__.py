"""The careful second stage for elements that the first pass leaves in doubt."""
