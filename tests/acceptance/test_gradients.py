"""The gradients under `specs/gradients`: green in every mode and at second order; what they compute is right.

That forward and gradient agree says nothing of whether the forward is what it's called: each is held here
against enumeration, sorting or plain iteration in NumPy.
"""

import importlib.util
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.support.processes import ROOT

pytestmark = pytest.mark.once

FOLDER = ROOT / "specs" / "gradients"


def load(name):
    """Import the code beside a spec."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_gradients(function, *arrays):
    """Return a function's value, and its gradients under an upstream of ones, as NumPy arrays."""
    tensors = [tf.constant(array) for array in arrays]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
    return value.numpy(), [gradient.numpy() for gradient in tape.gradient(value, tensors)]


# log(1 - exp(-x)), to fifty digits.


@pytest.mark.parametrize(
    ("x", "value", "slope"),
    [
        (1e-20, -46.051701859880914, 1e20),
        (1e-7, -16.118095700958319, 9.9999995000000083e6),
        (0.6931471805599453, -0.69314718055994531, 1.0),
        (2.0, -0.14541345786885906, 0.15651764274966565),
        (50.0, -1.9287498479639178e-22, 1.9287498479639178e-22),
        (700.0, -9.859676543759770e-305, 9.859676543759770e-305),
    ],
)
def test_log1mexp_keeps_every_digit(x, value, slope):
    found, (gradient,) = with_gradients(load("log1mexp").log1mexp, np.float64(x))
    assert found == pytest.approx(value, rel=4e-15)
    assert gradient == pytest.approx(slope, rel=4e-15)


# Conditional random fields, against all sequences of labels.


def labellings(unaries, transitions, length):
    """Return all sequences of labels of a length, and the score of each."""
    steps = range(length)
    sequences = np.array(list(itertools.product(range(unaries.shape[1]), repeat=length)))
    scores = [
        sum(unaries[step, labels[step]] for step in steps)
        + sum(transitions[labels[step], labels[step + 1]] for step in steps[:-1])
        for labels in sequences
    ]
    return sequences, np.array(scores)


def test_the_crf_sums_over_every_labelling():
    crf, generator = load("crf"), np.random.default_rng(0)
    unaries, transitions = generator.normal(size=(3, 4, 3)), generator.normal(size=(3, 3))
    lengths = [4, 2, 1]
    totals, (by_unaries, by_transitions) = with_gradients(
        lambda *x: crf.log_normalizer(*x, tf.constant(lengths)), unaries, transitions
    )
    marginals, counts = np.zeros((3, 4, 3)), np.zeros((3, 3))
    for number, length in enumerate(lengths):
        sequences, scores = labellings(unaries[number], transitions, length)
        probabilities = np.exp(scores) / np.exp(scores).sum()
        assert totals[number] == pytest.approx(np.log(np.exp(scores).sum()), rel=1e-13)
        for labels, probability in zip(sequences, probabilities, strict=True):
            for step in range(length):
                marginals[number, step, labels[step]] += probability
            for step in range(length - 1):
                counts[labels[step], labels[step + 1]] += probability
    np.testing.assert_allclose(by_unaries, marginals, atol=1e-14)
    np.testing.assert_allclose(by_transitions, counts, atol=1e-14)


# Soft dynamic time warping, against all alignments.


def alignments(n, m):
    """Return every monotone way from (0, 0) to (n - 1, m - 1), as lists of cells."""
    if (n, m) == (1, 1):
        return [[(0, 0)]]
    before = [(n - 1, m - 1), (n - 1, m), (n, m - 1)]
    return [[*way, (n - 1, m - 1)] for size in before if min(size) > 0 for way in alignments(*size)]


@pytest.mark.parametrize("shape", [(4, 3), (2, 5), (1, 3), (3, 1), (1, 1)])
@pytest.mark.parametrize("smoothing", [1.0, 0.1])
def test_soft_dtw_weighs_every_alignment(shape, smoothing):
    soft_dtw = load("soft_dtw").soft_dtw
    costs = np.random.default_rng(2).uniform(0, 2, size=(2, *shape))
    found, (gradient,) = with_gradients(lambda x: soft_dtw(x, smoothing=smoothing), costs)
    ways = alignments(*shape)
    for number in range(2):
        sums = np.array([sum(costs[number][cell] for cell in way) for way in ways])
        weights = np.exp(-sums / smoothing)
        assert found[number] == pytest.approx(-smoothing * np.log(weights.sum()), rel=1e-12)
        expected = np.zeros(shape)
        for way, weight in zip(ways, weights / weights.sum(), strict=True):
            for cell in way:
                expected[cell] += weight
        np.testing.assert_allclose(gradient[number], expected, atol=1e-13)


# Entropic transport, against the conditions that make it.


def test_the_plan_has_its_sums_and_its_form():
    generator = np.random.default_rng(4)
    costs = generator.uniform(size=(2, 3, 4))
    sources, targets = generator.dirichlet(np.ones(3), 2), generator.dirichlet(np.ones(4), 2)
    plan = (
        load("sinkhorn")
        .transport_plan(
            tf.constant(costs), tf.constant(sources), tf.constant(targets), smoothing=0.3, iterations=300
        )
        .numpy()
    )
    np.testing.assert_allclose(plan.sum(axis=2), sources, rtol=1e-12)
    np.testing.assert_allclose(plan.sum(axis=1), targets, rtol=1e-12)
    # log P + costs / smoothing is a number for the row and one for the column: cross differences vanish.
    potentials = np.log(plan) + costs / 0.3
    crossed = (
        potentials[:, 1:, 1:] - potentials[:, :-1, 1:] - potentials[:, 1:, :-1] + potentials[:, :-1, :-1]
    )
    np.testing.assert_allclose(crossed, 0.0, atol=1e-11)


# Sparsemax and entmax, against bisection for the threshold.


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
    rows[0] = [1, 1, 1, 1, 1, 1]
    rows[1] = [9, 0, 0, 0, 0, 0]
    found = getattr(load("sparsemax"), name)(tf.constant(rows)).numpy()
    np.testing.assert_allclose(found, [by_bisection(row, alpha) for row in rows], atol=1e-12)
    sizes = set((found > 0).sum(axis=1))
    assert {1, 2, 3} <= sizes  # supports of many sizes, or little was tested


# Reversible blocks, against TensorFlow's own gradient.


def test_the_reversible_stack_is_the_plain_one():
    stack = load("reversible").ReversibleStack(depth=3, units=2)
    generator = np.random.default_rng(6)
    x1, x2 = (tf.constant(generator.normal(size=(4, 2))) for _ in range(2))
    found = []
    for run in (stack, stack.plain):
        with tf.GradientTape() as tape:
            tape.watch([x1, x2])
            y1, y2 = run(x1, x2)
            loss = tf.reduce_sum(y1**2) + tf.reduce_sum(tf.sin(y2))
        found.append(tape.gradient(loss, [x1, x2, *stack.trainable_variables]))
    assert len(found[0]) == 2 + 12
    for own, plain in zip(*found, strict=True):
        np.testing.assert_allclose(own, plain, rtol=1e-10, atol=1e-12)


# Quantisers and reversal.


def test_quantisers_give_the_nearest_level():
    module = load("straight_through")
    x = np.linspace(-2, 2, 101)
    levels = np.linspace(-1, 1, 8)
    nearest = levels[np.abs(x[:, None] - levels).argmin(axis=1)]
    found = module.fake_quantizer(bits=3, low=-1.0, high=1.0)(tf.constant(x)).numpy()
    np.testing.assert_allclose(found, nearest, atol=1e-12)
    levels = 0.3 * np.arange(-2, 3)
    nearest = levels[np.abs(x[:, None] - levels).argmin(axis=1)]
    found = module.learned_step(tf.constant(x), tf.constant(0.3, tf.float64), levels=2).numpy()
    np.testing.assert_allclose(np.abs(found - x), np.abs(nearest - x), atol=1e-12)
    np.testing.assert_array_equal(module.round_straight_through(tf.constant([0.4, 1.6])), [0.0, 2.0])
