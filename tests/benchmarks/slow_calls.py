"""Calls of the kinds that took long in other projects' own tests, written anew in TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import tensorflow as tf

_GENERATOR = np.random.default_rng(0)


def _draw(*shape):
    return _GENERATOR.normal(size=shape)


class Call(NamedTuple):
    """A call of `check_function`."""

    function: object
    arguments: tuple
    options: Mapping[str, object] = MappingProxyType({})


# A sampler that is inverted implicitly: the mean of draws of a circular distribution.


def _cdf(x, concentration):
    """Integrate exp(k cos t) from -pi to x by the midpoint rule, over the whole circle's integral."""
    steps = (tf.range(64, dtype=x.dtype) + 0.5) / 64
    inside = -math.pi + (x[..., None] + math.pi) * steps
    weights = tf.reduce_mean(tf.exp(concentration * (tf.cos(inside) - 1)), -1) * (x + math.pi)
    whole = tf.reduce_mean(tf.exp(concentration * (tf.cos(math.pi * (2 * steps - 1)) - 1)), -1)
    return weights / (2 * math.pi * whole)


def circular_mean(concentration):
    """Return the mean square of a thousand draws, each found by Newton's steps from the normal's."""
    uniform = tf.random.stateless_uniform([1000], [1, 2], 0.001, 0.999, concentration.dtype)

    @tf.custom_gradient
    def sample(concentration):
        low, high = (
            tf.fill([1000], tf.cast(-math.pi, uniform.dtype)),
            tf.fill([1000], tf.cast(math.pi, uniform.dtype)),
        )
        for _ in range(60):
            middle = (low + high) / 2
            is_below = _cdf(middle, concentration) < uniform
            low, high = tf.where(is_below, middle, low), tf.where(is_below, high, middle)
        x = (low + high) / 2

        def grad(upstream):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch([x, concentration])
                each = tf.fill([1000], concentration)
                tape.watch(each)
                value = _cdf(x, each[:, None])
            slope = -tape.gradient(value, each) / tape.gradient(value, x)
            return tf.reduce_sum(upstream * slope)

        return x, grad

    return tf.reduce_mean(sample(concentration) ** 2)


# Sinkhorn's iteration in a loop of the graph, differentiated through.


def sinkhorn(cost):
    """Return the transport plan after 20 rounds."""
    log_k = -cost / 0.5
    f, g = tf.zeros(cost.shape[:1], cost.dtype), tf.zeros(cost.shape[1:], cost.dtype)
    for _ in tf.range(20):
        f = -tf.reduce_logsumexp(log_k + g[None, :], 1)
        g = -tf.reduce_logsumexp(log_k + f[:, None], 0)
    return tf.exp(f[:, None] + log_k + g[None, :])


# Bessel's function of the first kind, scaled: a series for small arguments, an integral for large ones.


def ive(order, x):
    """Return exp(-x) I_v(x) for orders and arguments above 0."""
    terms = tf.range(60, dtype=x.dtype)
    small = tf.minimum(x, 20.0)[..., None]
    powers = (2 * terms + order[..., None]) * tf.math.log(small / 2)
    series = tf.reduce_sum(
        tf.exp(powers - tf.math.lgamma(terms + 1) - tf.math.lgamma(terms + order[..., None] + 1) - small), -1
    )
    nodes = (tf.range(400, dtype=x.dtype) + 0.5) / 400
    angles, large = math.pi * nodes, tf.maximum(x, 20.0)[..., None]
    first = tf.reduce_mean(tf.exp(large * (tf.cos(angles) - 1)) * tf.cos(order[..., None] * angles), -1)
    tails = tf.exp(-large * (tf.cosh(6 * nodes) + 1) - order[..., None] * 6 * nodes)
    second = tf.sin(math.pi * order) / math.pi * 6 * tf.reduce_mean(tails, -1)
    return tf.where(x < 20.0, series, first - second)


# A shader: diffuse and specular light of points.


def phong(light, intensity, ambient, points, normals, albedo):  # noqa: PLR0913, PLR0917 (a shader's)
    """Return the light that points send to the origin."""
    to_light = tf.nn.l2_normalize(light - points, -1)
    to_eye, normal = tf.nn.l2_normalize(-points, -1), tf.nn.l2_normalize(normals, -1)
    cosine = tf.reduce_sum(to_light * normal, -1, keepdims=True)
    mirrored = 2 * cosine * normal - to_light
    shine = tf.reduce_sum(mirrored * to_eye, -1, keepdims=True)
    shine = tf.where(shine > 0, tf.where(shine > 0, shine, 1.0) ** 4.5, 0.0)
    return ambient + intensity * (tf.nn.relu(cosine) * albedo + shine)


# An ordinary differential equation whose field is a network, with the adjoint equation as its gradient.


def _field(state, weights):
    first, bias, second = weights
    return tf.tanh(state @ first + bias) @ second


def ode(state, first, bias, second):
    """Return the state after six steps of Runge and Kutta's method."""

    def step(field, value, h):
        k1 = field(value)
        k2 = field([v + h / 2 * k for v, k in zip(value, k1, strict=True)])
        k3 = field([v + h / 2 * k for v, k in zip(value, k2, strict=True)])
        k4 = field([v + h * k for v, k in zip(value, k3, strict=True)])
        return [
            v + h / 6 * (a + 2 * b + 2 * c + d) for v, a, b, c, d in zip(value, k1, k2, k3, k4, strict=True)
        ]

    @tf.custom_gradient
    def solve(state, *weights):
        states = [state]
        for _ in range(6):
            states.append(step(lambda value: [_field(value[0], weights)], [states[-1]], 0.1)[0])

        def grad(upstream):
            def adjoint(value):
                at, carried = value[:2]
                with tf.GradientTape() as tape:
                    tape.watch([at, *weights])
                    flow = _field(at, weights)
                pulled = tape.gradient(flow, [at, *weights], carried)
                return [flow, *(-each for each in pulled)]

            total = [tf.zeros_like(weight) for weight in weights]
            for at in reversed(states[1:]):
                _, upstream, *total = step(adjoint, [at, upstream, *total], -0.1)
            return upstream, *total

        return states[-1], grad

    return solve(state, first, bias, second)


# A correlation of two images' features over displacements, with its gradient written by hand.


@tf.custom_gradient
def correlation(a, b):
    """Return the mean product over channels, for displacements of up to two."""
    size = a.shape[1]
    padded = tf.pad(b, [[0, 0], [2, 2], [2, 2], [0, 0]])
    places = [(i, j) for i in range(5) for j in range(5)]
    shifted = [padded[:, i : i + size, j : j + size] for i, j in places]

    def grad(upstream):
        flows = [flow[..., None] / a.shape[-1] for flow in tf.unstack(upstream, axis=-1)]
        to_a = tf.add_n([flow * other for flow, other in zip(flows, shifted, strict=True)])
        to_b = tf.add_n(
            [
                tf.pad(flow * a, [[0, 0], [i, 4 - i], [j, 4 - j], [0, 0]])
                for flow, (i, j) in zip(flows, places, strict=True)
            ]
        )
        return to_a, to_b[:, 2:-2, 2:-2]

    return tf.stack([tf.reduce_mean(a * other, -1) for other in shifted], -1), grad


# Bilinear resampling of an image at points.


def resample(image, points):
    """Return the image's values between its pixels."""
    corner = tf.stop_gradient(tf.floor(points))
    x, y = tf.unstack(points - corner, axis=-1)
    at = tf.cast(corner, tf.int32)
    corners = {(i, j): tf.gather_nd(image, at + tf.constant([i, j])) for i in (0, 1) for j in (0, 1)}
    return sum(
        (x if i else 1 - x)[:, None] * (y if j else 1 - y)[:, None] * value
        for (i, j), value in corners.items()
    )


def calls():
    """Return the calls by name, each with arguments of its own."""
    places = _GENERATOR.uniform(0.2, 5.8, (12, 2))
    return {
        "circular mean of 1,000 draws": Call(circular_mean, (np.array(2.5),)),
        "sinkhorn, 20 rounds of a loop": Call(sinkhorn, (np.abs(_draw(6, 6)),)),
        "Bessel ive": Call(ive, (np.linspace(0.4, 4.1, 10), np.linspace(0.7, 40.0, 10))),
        "phong": Call(
            phong,
            (
                _draw(4, 3),
                np.abs(_draw(4, 3)),
                np.abs(_draw(4, 3)),
                _draw(4, 3) - 3,
                _draw(4, 3),
                _draw(4, 3) ** 2,
            ),
        ),
        "ODE with a neural field, adjoint": Call(ode, (_draw(2, 3), _draw(3, 8), _draw(8), _draw(8, 3))),
        "correlation": Call(correlation, (_draw(1, 6, 6, 4), _draw(1, 6, 6, 4))),
        "resample, eager": Call(resample, (_draw(7, 7, 2), places), {"modes": "eager"}),
    }
