"""Whole networks with a loss, small in their images and sequences: what `networks.yaml` checks."""

import keras
import tensorflow as tf

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


def _screen(outputs):
    """Return a network from a screen of 42 by 42 pixels to one or more dense layers."""
    x = keras.Input((42, 42, 4))
    h = layers.Conv2D(16, 8, strides=4, activation="relu")(x)
    h = layers.Conv2D(32, 4, strides=2, activation="relu")(h)
    h = layers.Dense(256, "relu")(layers.Flatten()(h))
    return keras.Model(x, [layers.Dense(size)(h) for size in outputs])


def dqn():
    """Return a double DQN's loss: the target, from a second network, is stopped."""
    online, target = _screen([6]), _screen([6])

    def loss(x, action, reward, after):
        best = tf.argmax(online(after), axis=1)
        goal = reward + 0.99 * tf.gather(target(after), best, batch_dims=1)
        values = tf.gather(online(x), action, batch_dims=1)
        return tf.reduce_mean(keras.losses.huber(tf.stop_gradient(goal)[:, None], values[:, None]))

    return loss


def a2c():
    """Return an actor's and a critic's loss with an entropy; the advantage is stopped for the actor."""
    model = _screen([6, 1])

    def loss(x, action, returns):
        logits, value = model(x)
        log_p = tf.nn.log_softmax(logits)
        advantage = returns - value[:, 0]
        actor = -tf.reduce_mean(tf.gather(log_p, action, batch_dims=1) * tf.stop_gradient(advantage))
        entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(log_p) * log_p, 1))
        return actor + 0.5 * tf.reduce_mean(advantage**2) - 0.01 * entropy

    return loss


def vqvae():
    """Return a VQ-VAE's loss: each vector is replaced by the nearest of 32 codes, straight through."""
    x = keras.Input((28, 28, 1))
    h = layers.Conv2D(16, 3, strides=2, padding="same", activation="relu")(x)
    h = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(h)
    encoder = keras.Model(x, layers.Conv2D(16, 1)(h))
    z = keras.Input((7, 7, 16))
    h = layers.Conv2DTranspose(32, 3, strides=2, padding="same", activation="relu")(z)
    h = layers.Conv2DTranspose(16, 3, strides=2, padding="same", activation="relu")(h)
    decoder = keras.Model(z, layers.Conv2D(1, 3, padding="same")(h))
    codes = tf.Variable(tf.random.stateless_normal((32, 16), [0, 1]), name="codes")

    def loss(x):
        encoded = encoder(x)
        vectors = tf.reshape(encoded, (-1, 1, 16))
        nearest = tf.argmin(tf.reduce_sum((vectors - codes) ** 2, 2), 1)
        quantised = tf.reshape(tf.gather(codes, nearest), tf.shape(encoded))
        decoded = decoder(encoded + tf.stop_gradient(quantised - encoded))
        kept = tf.reduce_mean((tf.stop_gradient(encoded) - quantised) ** 2)
        committed = tf.reduce_mean((tf.stop_gradient(quantised) - encoded) ** 2)
        return tf.reduce_mean((decoded - x) ** 2) + kept + 0.25 * committed

    loss.trainable_variables = [*encoder.trainable_variables, *decoder.trainable_variables, codes]
    return loss


def vit():
    """Return a vision transformer of four blocks over 64 patches."""
    x = keras.Input((32, 32, 3))
    h = layers.Reshape((64, 48))(layers.Conv2D(48, 4, strides=4)(x))
    h += layers.Embedding(64, 48)(keras.ops.arange(64))
    for _ in range(4):
        h = _fed_forward(_attended(h, 3), 48)
    return _trained(keras.Model(x, layers.Dense(10)(layers.GlobalAveragePooling1D()(h))))
