from dataclasses import replace

import numpy as np
import pytest

from tests.benchmarks.planted_errors import KINDS, SMALLEST, Plant, draw_plants


def gradients(a, b, upstream, plant=None):
    """The gradients of a @ b as TensorFlow gives them, with a plant."""
    import tensorflow as tf

    from tests.benchmarks.benchmark_functions import planted_matmul

    a, b = tf.constant(a), tf.constant(b)
    with tf.GradientTape() as tape:
        tape.watch((a, b))
        y = planted_matmul(a, b, plant=plant)
    return [found.numpy() for found in tape.gradient(y, (a, b), tf.constant(upstream))]


def test_plants_are_the_same_for_a_seed_and_within_their_bounds():
    plants = draw_plants(200, 512)
    assert plants == draw_plants(200, 512)
    assert plants != draw_plants(200, 512, seed=1)
    assert len(set(plants)) == 200
    assert {plant.kind for plant in plants} == set(KINDS)
    assert {plant.input for plant in plants} == {0, 1}
    sizes = np.abs([plant.size for plant in plants])
    assert sizes.min() >= SMALLEST
    assert sizes.max() <= 1
    assert 0.05 < np.median(sizes) < 0.2  # log-uniform: the middle is at 10 %
    assert {np.sign(plant.size) for plant in plants} == {-1, 1}


@pytest.mark.parametrize("number", range(8))
def test_a_plant_changes_the_one_element_it_names_by_its_size(number):
    plant = draw_plants(8, 5)[number]
    rng = np.random.default_rng(number)
    a, b = rng.standard_normal((2, 5, 5))
    # An upstream of one element alone: its gradient is a row of the Jacobian.
    upstream = np.zeros((5, 5))
    upstream[plant.upstream] = 1
    right, spoilt = (gradients(a, b, upstream, given) for given in (None, plant.as_attribute()))
    difference = spoilt[plant.input] - right[plant.input]
    assert np.argwhere(difference).tolist() == [list(plant.element)]
    assert difference[plant.element] == pytest.approx(plant.size * right[plant.input][plant.element])
    np.testing.assert_array_equal(spoilt[1 - plant.input], right[1 - plant.input])


def test_an_entry_stays_right_for_every_other_upstream():
    plant = next(plant for plant in draw_plants(8, 5) if plant.kind == "entry")
    a, b, upstream = np.random.default_rng(0).standard_normal((3, 5, 5))
    upstream[plant.upstream] = 0
    for right, spoilt in zip(
        gradients(a, b, upstream), gradients(a, b, upstream, plant.as_attribute()), strict=True
    ):
        np.testing.assert_array_equal(right, spoilt)


def test_where_a_plant_lies():
    entry = Plant("entry", 0, (1, 2), (1, 4), (2, 4), 0.1)
    assert entry.located_at((1, 2), (1, 4))
    assert not entry.located_at((1, 2), (1, 3))
    assert not entry.located_at((2, 2), (1, 4))
    scaled = replace(entry, kind="scaled")
    assert scaled.located_at((1, 2), (1, 3))
    assert not scaled.located_at((1, 2), (0, 3))
    assert replace(scaled, input=1).located_at((1, 2), (0, 2))
