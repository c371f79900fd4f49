"""The branches of a forward and its gradient, and the sides that a point takes."""
