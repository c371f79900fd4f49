"""TensorFlow's gradient registry, and descriptions of op types and functions."""
