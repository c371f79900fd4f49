"""What the forwards under `specs/gradients` compute is right.

That forward and gradient agree, which CI's run of the specs says, says nothing of whether the forward is what
it's called: each is held here against enumeration, sorting or plain iteration in NumPy.
"""

import importlib.util
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.support.processes import ROOT

pytestmark = pytest.mark.once


def load(name):
    """Import the code beside a spec."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "specs" / "gradients" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# log(1 - exp(-x)), to fifty digits.
LOG1MEXP = {
    1e-20: -46.051701859880914,
    1e-7: -16.118095700958319,
    0.6931471805599453: -0.69314718055994531,
    2.0: -0.14541345786885906,
    50.0: -1.9287498479639178e-22,
    700.0: -9.859676543759770e-305,
}


def test_log1mexp_keeps_every_digit():
    found = load("log1mexp").log1mexp(tf.constant(list(LOG1MEXP), tf.float64)).numpy()
    np.testing.assert_allclose(found, list(LOG1MEXP.values()), rtol=4e-15)


def test_the_crf_sums_over_every_labelling():
    crf, generator, lengths = load("crf"), np.random.default_rng(0), [4, 2, 1]
    unaries, transitions = generator.normal(size=(3, 4, 3)), generator.normal(size=(3, 3))
    totals = crf.log_normalizer(tf.constant(unaries), tf.constant(transitions), tf.constant(lengths)).numpy()
    for number, length in enumerate(lengths):
        scores = [
            sum(unaries[number, step, label] for step, label in enumerate(labels))
            + sum(transitions[pair] for pair in itertools.pairwise(labels))
            for labels in itertools.product(range(3), repeat=length)
        ]
        assert totals[number] == pytest.approx(np.log(np.exp(scores).sum()), rel=1e-13)
    labellings = np.array(list(itertools.product(range(3), repeat=3)))
    unaries = tf.repeat(generator.normal(size=(1, 3, 3)), len(labellings), axis=0)
    found = crf.log_likelihood(unaries, tf.constant(transitions), [3] * len(labellings), labellings)
    assert np.exp(found.numpy()).sum() == pytest.approx(1.0, rel=1e-13)


def alignments(n, m):
    """Return every monotone way from (0, 0) to (n - 1, m - 1), as lists of cells."""
    if (n, m) == (1, 1):
        return [[(0, 0)]]
    before = [(n - 1, m - 1), (n - 1, m), (n, m - 1)]
    return [[*way, (n - 1, m - 1)] for size in before if min(size) > 0 for way in alignments(*size)]


@pytest.mark.parametrize("shape", [(4, 3), (2, 5), (1, 3), (3, 1), (1, 1)])
def test_soft_dtw_weighs_every_alignment(shape):
    costs = np.random.default_rng(2).uniform(0, 2, size=shape)
    sums = np.array([sum(costs[cell] for cell in way) for way in alignments(*shape)])
    for smoothing in (1.0, 0.1):
        found = load("soft_dtw").soft_dtw(tf.constant(costs[None]), smoothing=smoothing).numpy()
        assert found[0] == pytest.approx(-smoothing * np.log(np.exp(-sums / smoothing).sum()), rel=1e-12)


def test_the_plan_of_entropic_transport_has_its_sums_and_its_form():
    generator = np.random.default_rng(4)
    costs = generator.uniform(size=(2, 3, 4))
    sources, targets = generator.dirichlet(np.ones(3), 2), generator.dirichlet(np.ones(4), 2)
    plan = load("sinkhorn").transport_plan(
        tf.constant(costs), tf.constant(sources), tf.constant(targets), smoothing=0.3, iterations=300
    )
    np.testing.assert_allclose(plan.numpy().sum(axis=2), sources, rtol=1e-12)
    np.testing.assert_allclose(plan.numpy().sum(axis=1), targets, rtol=1e-12)
    # log P + costs / smoothing is a number for the row and one for the column: cross differences vanish.
    potentials = np.log(plan) + costs / 0.3
    np.testing.assert_allclose(np.diff(np.diff(potentials, axis=1), axis=2), 0.0, atol=1e-11)


def by_bisection(scores, alpha):
    """Return relu((alpha - 1) z - t) ** (1 / (alpha - 1)) of one row, with t so that it sums to 1."""
    scores = (alpha - 1) * scores
    low, high = scores.max() - 1, scores.max()
    for _ in range(200):
        middle = (low + high) / 2
        total = (np.maximum(scores - middle, 0) ** (1 / (alpha - 1))).sum()
        low, high = (middle, high) if total > 1 else (low, middle)
    return np.maximum(scores - low, 0) ** (1 / (alpha - 1))


@pytest.mark.parametrize(("name", "alpha"), [("sparsemax", 2.0), ("entmax15", 1.5)])
def test_sparse_softmaxes_are_what_bisection_finds(name, alpha):
    rows = np.random.default_rng(5).normal(size=(50, 6)) * 2
    rows[:2] = [[1, 1, 1, 1, 1, 1], [9, 0, 0, 0, 0, 0]]
    found = getattr(load("sparsemax"), name)(tf.constant(rows)).numpy()
    np.testing.assert_allclose(found, [by_bisection(row, alpha) for row in rows], atol=1e-12)
    assert {1, 2, 3} <= set((found > 0).sum(axis=1))  # supports of many sizes, or little was tested


def test_the_reversible_stack_is_the_plain_one():
    stack = load("reversible").ReversibleStack(depth=3, units=2)
    x1, x2 = tf.constant(np.random.default_rng(6).normal(size=(2, 4, 2)))
    for own, plain in zip(stack(x1, x2), stack.plain(x1, x2), strict=True):
        np.testing.assert_allclose(own, plain, rtol=1e-10, atol=1e-12)


def test_quantisers_give_the_nearest_level():
    module = load("straight_through")
    x, levels = np.linspace(-2, 2, 101), np.linspace(-1, 1, 8)
    nearest = levels[np.abs(x[:, None] - levels).argmin(axis=1)]
    found = module.fake_quantizer(bits=3, low=-1.0, high=1.0)(tf.constant(x)).numpy()
    np.testing.assert_allclose(found, nearest, atol=1e-12)
    levels = 0.3 * np.arange(-2, 3)
    nearest = levels[np.abs(x[:, None] - levels).argmin(axis=1)]
    found = module.learned_step(tf.constant(x), tf.constant(0.3, tf.float64), levels=2).numpy()
    np.testing.assert_allclose(np.abs(found - x), np.abs(nearest - x), atol=1e-12)
    np.testing.assert_array_equal(module.round_straight_through(tf.constant([0.4, 1.6])), [0.0, 2.0])
