"""Sites of a traced forward: on whose way they lie, and that what several points show adds up."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradcheck_cli.checking.ops.operation import Opening
from gradcheck_cli.checking.pairs.pair import label_of, pair_keys
from gradcheck_cli.running.session import start_tensorflow, user_code
from gradcheck_cli.spec.load import load_mapping

start_tensorflow()

from gradcheck_cli.features.mutation.sites import Site, sites_of, unseen_sites  # noqa: E402 (it needs TensorFlow)


@pytest.fixture(autouse=True)
def _functions_at_hand(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)


def sites(spec, sample=0):
    """Return (corruption, pairs, what isn't seen) of a spec's sites at a point."""
    from gradcheck_cli.tensorflow_backend.graph_view import ForwardGraph
    from gradcheck_cli.tensorflow_backend.openers import opener_of

    (case,) = load_mapping(spec)
    with user_code(case):
        op = opener_of(case, "graph").open(Opening(sample))
        found = sites_of(ForwardGraph(op), pair_keys(op))
    labels = {pair: label_of(op, pair) for pair in pair_keys(op)}
    return [(one.corruption, {labels[pair] for pair in one.pairs}, one.unseen) for one in found]


def test_a_batch_of_one_hides_only_what_is_summed_over_it():
    spec = {"forward": "tensorflow:matmul", "inputs": {"a": {"shape": [1, 3]}, "b": {"shape": [3, 2]}}}
    ((corruption, pairs, unseen),) = [one for one in sites(spec) if one[2]]
    assert (corruption, pairs) == ("mean", {"dy/db"})
    assert "the batch has size 1" in unseen[0]


@pytest.mark.parametrize(("value", "count"), [(1.0, 1), (2.0, 0)])
def test_a_factor_of_ones_hides_itself_from_the_other_operand(value, count):
    inputs = {"x": {"shape": [3]}, "y": {"shape": [3], "value": value}}
    found = [one for one in sites({"forward": "tensorflow:multiply", "inputs": inputs}) if one[2]]
    assert len(found) == count
    assert all(one[:2] == ("ones", {"dy/dx"}) for one in found)


@pytest.mark.parametrize(
    ("values", "unseen"),
    [
        ([1.0, 2.0], ("no element takes its side '< 0'",)),
        ([-1.0, -2.0], ("no element takes its side '> 0'",)),
        ([-1.0, 2.0], ()),
    ],
)
def test_both_sides_of_a_kink_are_wanted(values, unseen):
    ((corruption, _, found),) = sites({"forward": "tensorflow.nn:relu", "inputs": {"x": {"value": values}}})
    assert (corruption, found) == ("branch", unseen)


@pytest.mark.parametrize(
    ("forward", "inputs", "corruption", "words"),
    [
        (
            "tensorflow:square",
            {"x": {"value": [1.0, 2.0], "dtype": "complex128"}},
            "conjugate",
            "no imaginary",
        ),
        ("tensorflow:square", {"x": {"value": ["1+1j"], "dtype": "complex128"}}, "conjugate", ""),
        ("sites_functions:product", {"x": {"value": [[2.0, 1.0], [1.0, 3.0]]}}, "transpose", "symmetric"),
        ("sites_functions:product", {"x": {"value": [[2.0, 1.0], [0.0, 3.0]]}}, "transpose", ""),
        ("sites_functions:over_batch", {"x": {"shape": [1, 3]}}, "size", "divides by 1 in every case"),
        ("sites_functions:over_batch", {"x": {"shape": [4, 3]}}, "size", "divides by 4 in every case"),
    ],
)
def test_values_and_sizes_that_hide_an_error(forward, inputs, corruption, words):
    found = [
        unseen for kind, _, unseen in sites({"forward": forward, "inputs": inputs}) if kind == corruption
    ]
    assert found
    assert all(words in " ".join(unseen) if words else not unseen for unseen in found)


def site(*unseen, place="Relu"):
    return Site("branch", place, frozenset([(0, 0)]), unseen)


def test_what_one_point_shows_is_seen():
    below, above = site("no element takes its side '< 0'"), site("no element takes its side '> 0'")
    assert unseen_sites([[below], [above]]) == []
    assert unseen_sites([[below], [below]]) == [below]


def test_the_side_of_a_switch_that_is_not_taken_has_no_values():
    spec = {"forward": "sites_functions:one_of_two", "inputs": {"x": {"value": [1.0, 2.0]}}}
    assert [one[2] for one in sites(spec)] == [("no element takes its side '< 0'",)]
