"""Everything that relies on TensorFlow's private parts."""
