"""Turns a case's forward and gradient into one function of tensors."""
