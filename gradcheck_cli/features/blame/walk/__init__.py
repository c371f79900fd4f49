"""Walks through a graph and its backward pass, op by op."""
