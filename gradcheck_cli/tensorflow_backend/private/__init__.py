"""All reliance on TensorFlow's private parts."""
