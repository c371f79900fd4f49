"""What the specs beside it build where a layer's constructor alone won't do."""

import keras
import tensorflow as tf

layers = keras.layers


def training_layer(kind, **arguments):
    """Return a layer as training calls it."""
    layer = getattr(layers, kind)(**arguments)
    return lambda x: layer(x, training=True)


def attention(kind, **arguments):
    """Return attention whose query, value and key are inputs of their own."""
    layer = getattr(layers, kind)(**arguments)
    return lambda query, value, key: layer([query, value, key])


def causal_attention(**arguments):
    """Return attention in which no position sees a later one."""
    layer = layers.MultiHeadAttention(**arguments)
    return lambda query, value: layer(query, value, use_causal_mask=True)


def masked(kind, **arguments):
    """Return a layer that passes over masked steps."""
    layer = getattr(layers, kind)(**arguments)
    return lambda x, mask: layer(x, mask=mask)


def masked_training(kind, **arguments):
    """Return a layer that passes over masked steps, as training calls it."""
    layer = getattr(layers, kind)(**arguments)
    return lambda x, mask: layer(x, mask=mask, training=True)


def masked_bidirectional(units):
    """Return an LSTM that reads from both ends and passes over masked steps."""
    layer = bidirectional(units)
    return lambda x, mask: layer(x, mask=mask)


def masked_attention(kind, **arguments):
    """Return attention that sees some of the values only, by a mask of them."""
    layer = getattr(layers, kind)(**arguments)
    return lambda query, value, mask: layer([query, value], mask=[None, mask])


def masked_heads(kind, **arguments):
    """Return attention of several heads by a mask of queries and values."""
    layer = getattr(layers, kind)(**arguments)
    return lambda query, value, mask: layer(query, value, attention_mask=mask)


def bidirectional(units):
    """Return an LSTM that reads from both ends."""
    return layers.Bidirectional(layers.LSTM(units))


def stacked(units):
    """Return two cells of different kinds, one on the other, as a layer."""
    return layers.RNN([layers.LSTMCell(units), layers.GRUCell(units)])


def stacked_cells(units):
    """Return two cells as one, whose states are a list."""
    layer = layers.StackedRNNCells([layers.GRUCell(units), layers.SimpleRNNCell(units)])
    return lambda x, states: layer(x, list(states))


def time_distributed(units):
    """Return a dense layer that is applied at each step."""
    return layers.TimeDistributed(layers.Dense(units, activation="tanh"))


def spectral(units):
    """Return a dense layer whose kernel is divided by its largest singular value."""
    layer = layers.SpectralNormalization(layers.Dense(units))
    return lambda x: layer(x, training=True)


def lambda_layer():
    """Return a function as a layer."""
    return layers.Lambda(lambda x: tf.sin(x) * x)


def pipeline():
    """Return two layers as one."""
    return layers.Pipeline([layers.Rescaling(0.5), layers.Activation("tanh")])


def normalization(mean, variance):
    """Return a layer that shifts and scales by given statistics."""
    layer = layers.Normalization(mean=mean, variance=variance)
    layer.build((None, len(mean)))  # in a graph it would keep tensors of the first trace
    return layer
