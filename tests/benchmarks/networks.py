"""Whole networks with a loss, small in their images and sequences: what `networks.yaml` checks."""

import keras

layers = keras.layers


def _trained(model):
    """Return a classifier's loss as a function of its input and labels, as training calls it."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return lambda x, labels: loss(labels, model(x, training=True))


def mlp():
    """Return a perceptron with two hidden layers."""
    x = keras.Input((32,))
    h = layers.Dense(128, "relu")(x)
    h = layers.Dense(128, "relu")(h)
    return _trained(keras.Model(x, layers.Dense(10)(h)))


def cnn():
    """Return convolutions, pooling and a dense layer."""
    x = keras.Input((28, 28, 1))
    h = layers.Conv2D(16, 3, activation="relu")(x)
    h = layers.MaxPool2D()(h)
    h = layers.Conv2D(32, 3, activation="relu")(h)
    h = layers.MaxPool2D()(h)
    return _trained(keras.Model(x, layers.Dense(10)(layers.Flatten()(h))))


def recurrent(kind):
    """Return two recurrent layers over an embedded text."""
    tokens = keras.Input((16,), dtype="int32")
    h = layers.Embedding(100, 32)(tokens)
    h = getattr(layers, kind)(32, return_sequences=True)(h)
    h = getattr(layers, kind)(32)(h)
    return _trained(keras.Model(tokens, layers.Dense(10)(h)))


def _attended(h, heads, **arguments):
    normal = layers.LayerNormalization()(h)
    return h + layers.MultiHeadAttention(heads, 16)(normal, normal, **arguments)


def _fed_forward(h, width):
    wide = layers.Dense(4 * width, "gelu")(layers.LayerNormalization()(h))
    return h + layers.Dense(width)(wide)


def encoder():
    """Return a transformer that classifies a sequence."""
    tokens = keras.Input((16,), dtype="int32")
    h = layers.Embedding(100, 32)(tokens)
    for _ in range(2):
        h = _fed_forward(_attended(h, 2), 32)
    return _trained(keras.Model(tokens, layers.Dense(10)(layers.GlobalAveragePooling1D()(h))))


def decoder():
    """Return a transformer that predicts each next token, and sees those before alone."""
    tokens = keras.Input((16,), dtype="int32")
    h = layers.Embedding(100, 32)(tokens)
    for _ in range(2):
        h = _fed_forward(_attended(h, 2, use_causal_mask=True), 32)
    return _trained(keras.Model(tokens, layers.Dense(100)(layers.LayerNormalization()(h))))


def unet():
    """Return a U-Net: down twice, up twice, with the skipped parts put back."""
    x = keras.Input((32, 32, 3))
    skipped, h = [], x
    for filters in (8, 16):
        h = layers.Conv2D(filters, 3, padding="same", activation="relu")(h)
        skipped.append(h)
        h = layers.MaxPool2D()(h)
    h = layers.Conv2D(32, 3, padding="same", activation="relu")(h)
    for filters, skip in ((16, skipped[1]), (8, skipped[0])):
        h = layers.Conv2DTranspose(filters, 2, strides=2)(h)
        h = layers.Conv2D(filters, 3, padding="same", activation="relu")(layers.Concatenate()([h, skip]))
    return _trained(keras.Model(x, layers.Conv2D(4, 1)(h)))


def application(name, size, *, training):
    """Return one of Keras' own networks, with random weights."""
    model = getattr(keras.applications, name)(
        weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return lambda x, labels: loss(labels, model(x, training=training))
