"""NumPy only: steps, differences, ladder, noise, kinks, comparison."""
