"""gradcheck: checks custom TensorFlow gradients against numeric derivatives."""

__version__ = "0.1.0"
