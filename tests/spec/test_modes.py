from __future__ import annotations

import pytest

from gradcheck_cli.spec.case import in_each_mode

SPEC = "op: f\nforward: m:f\ninputs: {x: {shape: [2]}}\n"


@pytest.fixture
def cases(cases_of):
    return lambda text, *options: [
        (case.name, case.mode, case.running.modes, case.running.device)
        for case in in_each_mode(cases_of(SPEC + text), *options)
    ]


def test_graph_is_the_default(cases):
    assert cases("") == [("default", "graph", ("graph",), None)]


def test_a_case_for_each_mode_in_the_order_of_the_spec(cases):
    found = cases("modes: [xla, graph]\ncases: [{name: a, modes: [eager]}]")
    assert [one[:2] for one in found] == [("default", "xla"), ("default", "graph"), ("a", "eager")]
    assert found[1][2] == ("xla", "graph")


def test_the_command_line_overrides(cases):
    found = cases("modes: [xla]\ndevice: GPU:0", ("eager", "graph", "eager"), "CPU:0")
    assert found == [
        ("default", "eager", ("eager", "graph"), "CPU:0"),
        ("default", "graph", ("eager", "graph"), "CPU:0"),
    ]


def test_second_order_of_some_modes(cases_of):
    found = in_each_mode(
        cases_of(
            SPEC + "modes: [graph, eager]\ndtypes: [float32, float64]\nsecond_order: [graph, float64]\n"
            "pairs: {d2y/dx.dx: zero}"
        )
    )
    assert [(case.dtype, case.mode) for case in found if case.judging.second_order] == [("float64", "graph")]
    assert [len(case.expected.pairs) for case in found] == [0, 0, 1, 0]
