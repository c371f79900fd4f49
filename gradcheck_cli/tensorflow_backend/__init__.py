"""The only package that imports TensorFlow: binding, tracing, the registry, TensorFlow's private parts."""
