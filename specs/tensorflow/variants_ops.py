"""Functions of tensors that are packed into variants (optionals, composite tensors) and unpacked again."""

import tensorflow as tf
from mixed_outputs import mixed
from tensorflow.core.protobuf import composite_tensor_variant_pb2 as variant
from tensorflow.python.saved_model import nested_structure_coder

raw = tf.raw_ops


def optional(x, u):
    """Put two tensors into an optional, and take them out."""
    return mixed(*_through_optional(x, u))


def optional_of_two_dtypes(x, u):
    """Put a real and a complex tensor into an optional, and take them out."""
    x, u = _through_optional(x, u)
    total = tf.square(tf.reduce_sum(x) + tf.reduce_sum(tf.math.real(u * tf.math.conj(u))))
    return x * total, u * tf.cast(total, u.dtype)


def one_of_an_optional(x, v):
    """Put two tensors into an optional, take them out, and use the first."""
    return mixed(_through_optional(x, v)[0])


def _through_optional(*tensors):
    packed = raw.OptionalFromValue(components=tensors)
    return raw.OptionalGetValue(
        optional=packed,
        output_types=[tensor.dtype for tensor in tensors],
        output_shapes=[tensor.shape for tensor in tensors],
    )


def public_optional(x):
    """Put a tensor into a tf.experimental.Optional, and take it out twice."""
    packed = tf.experimental.Optional.from_value(x)
    return packed.get_value() * tf.sin(packed.get_value())


def composite(values):
    """Put a ragged tensor into a composite tensor's variant, and take it out."""
    ragged = tf.RaggedTensor.from_row_splits(values, tf.constant([0, 2, 2, 4], tf.int64))
    return mixed(_through_variant(ragged, tf.type_spec_from_value(ragged)).flat_values)


def sparse_composite(values):
    """Put a sparse tensor into a composite tensor's variant, and take it out."""
    sparse = tf.SparseTensor([[0, 1], [1, 0], [2, 2], [3, 1]], values, [4, 3])
    return mixed(_through_variant(sparse, tf.type_spec_from_value(sparse)).values)


def _through_variant(tensor, spec):
    components = tf.nest.flatten(tensor, expand_composites=True)
    metadata = _metadata(spec)
    packed = raw.CompositeTensorVariantFromComponents(components=components, metadata=metadata)
    unpacked = raw.CompositeTensorVariantToComponents(
        encoded=packed, metadata=metadata, Tcomponents=[part.dtype for part in components]
    )
    return tf.nest.pack_sequence_as(spec, unpacked, expand_composites=True)


def _metadata(spec):
    """Return what the kernels take: a serialised message that names the tensor's type."""
    encoded = nested_structure_coder.encode_structure(spec).type_spec_value
    return variant.CompositeTensorVariantMetadata(type_spec_proto=encoded).SerializeToString()
