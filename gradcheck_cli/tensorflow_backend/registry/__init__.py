"""TensorFlow's gradient registry, and what op types and functions look like."""
