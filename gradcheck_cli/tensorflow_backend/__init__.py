"""The only importer of TensorFlow: binding, tracing, registry, and all use of its private parts."""
