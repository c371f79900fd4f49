"""Finds the hand-written gradients of a package, and says which of them a run has checked."""
