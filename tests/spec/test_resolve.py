"""What documents mean: merging, cases, dtypes, bindings; the design's own examples."""

import math

import pytest

from gradcheck_cli.spec.case import (
    Argument,
    Case,
    CodeUnderTest,
    Expectations,
    FunctionRef,
    InputSpec,
    Origin,
    OutputSpec,
    PairRule,
    Reference,
    Source,
    StatedTolerance,
)

EXAMPLES = """
op: sparse_conv_2layer            # unique
description: Two chained sparse convolutions
forward: sparse_cnn:two_layers
outputs: [M1, t1, M2, t2]
inputs:
  M0: {shape: [3, 2], dtype: float64, value: [[1.7, 0.7], [7.9, 0.9], [4.8, 0.8]]}
  t0: {shape: [2], dtype: float64, value: 0.0}
pairs:
  dt1/dM0: {expect: disconnected}
---
op: matmul_transposed
op_type: MatMul
attrs: {transpose_a: true}
inputs: {a: {shape: [4, 3]}, b: {shape: [4, 5]}}
dtypes: [float32, float64, complex128]
cases:
  - {name: square, inputs: {a: {shape: [4, 4]}, b: {shape: [4, 4]}}}
  - {name: both, attrs: {transpose_b: true}, inputs: {b: {shape: [5, 4]}}}
---
op: concat
op_type: ConcatV2
inputs: {values: [{shape: [2, 3]}, {shape: [4, 3]}], axis: {value: 0, dtype: int32}}
"""


@pytest.fixture
def examples(cases_of):
    by_op = {}
    for case in cases_of(EXAMPLES):
        by_op.setdefault(case.op, []).append(case)
    return by_op


def test_example_with_values(examples, tmp_path):
    values = [[1.7, 0.7], [7.9, 0.9], [4.8, 0.8]]
    assert examples["sparse_conv_2layer"] == [
        Case(
            op="sparse_conv_2layer",
            name="default",
            dtype="float64",
            arguments=(
                Argument("M0", (InputSpec("M0", "float64", (3, 2), Source("value", {"value": values})),)),
                Argument("t0", (InputSpec("t0", "float64", (2,), Source("value", {"value": 0.0})),)),
            ),
            outputs=tuple(map(OutputSpec, ("M1", "t1", "M2", "t2"))),
            code=CodeUnderTest(FunctionRef("sparse_cnn:two_layers")),
            expected=Expectations(pairs=(PairRule("dt1/dM0", "disconnected"),)),
            origin=Origin("a.yaml", str(tmp_path), 1),
        )
    ]
    assert not examples["sparse_conv_2layer"][0].is_generated


def test_example_cases_cross_dtypes(examples):
    cases = examples["matmul_transposed"]
    assert [(case.name, case.origin.variant) for case in cases] == [
        (name, dtype)
        for name in ("default", "square", "both")
        for dtype in ("float32", "float64", "complex128")
    ]
    assert all(case.dtype == case.origin.variant == case.tensors[0].dtype for case in cases)
    assert [tuple(tensor.shape for tensor in case.tensors) for case in cases[::3]] == [
        ((4, 3), (4, 5)),
        ((4, 4), (4, 4)),
        ((4, 3), (5, 4)),
    ]
    assert cases[6].code.attrs == {"transpose_a": True, "transpose_b": True}
    assert cases[0].code == CodeUnderTest(op_type="MatMul", attrs={"transpose_a": True})


def test_example_list_argument(examples):
    (case,) = examples["concat"]
    values, axis = case.arguments
    assert values.form.kind == "list"
    assert [(tensor.name, tensor.shape) for tensor in values.tensors] == [
        ("values[0]", (2, 3)),
        ("values[1]", (4, 3)),
    ]
    assert axis.tensors == (InputSpec("axis", "int32", (), Source("value", {"value": 0})),)
    assert case.dtype == "float64"


@pytest.mark.parametrize(
    ("keys", "binding"),
    [
        ("forward: m:f", "autodiff"),
        ("op_type: Exp", "autodiff"),
        ("forward: m:f\ngradient: m:g", "custom_gradient"),
        ("op_type: Exp\ngradient: m:g", "override"),
        ("forward: m:f\nop_type: Exp\ngradient: m:g\nbinding: override", "override"),
        ("forward: m:f\ngradient: {numpy: 'm:g'}\nbinding: defun\noutputs: {y: {dtype: float32}}", "defun"),
        (
            "forward: {numpy: 'm:f'}\ngradient: m:g\nbinding: py_func\noutputs: {y: {dtype: float32}}",
            "py_func",
        ),
    ],
)
def test_bindings(cases_of, keys, binding):
    (case,) = cases_of(f"op: f\n{keys}\ninputs: {{x: {{shape: [2]}}}}\n")
    assert case.code.binding == binding


def test_every_other_key(cases_of):
    (case,) = cases_of("""
        op: f
        forward: m:factory
        build: {delta: 1, shape: [1, 2]}
        attrs: {k: {a: [1]}}
        reference: m:r
        reference_forward: true
        tolerance: {atol: 1, rtol: 1e-3}
        freeze: false
        samples: 5
        seed: 7
        tags: [slow, gpu]
        pairs:
          d?/d*: {expect: skip, reason: no, atol: 1, rtol: 2}
        inputs:
          x: {shape: [2], domain: {low: -5}, scale: 2, min_gap: 0.1, differentiate: false}
          y: {shape: [2], dtype: bfloat16, domain: {high: 5}}
          z: {shape: [0], bool: 0.25}
    """)
    assert case.code.build == {"delta": 1, "shape": [1, 2]}
    assert case.code.attrs == {"k": {"a": [1]}}
    assert case.reference == Reference(FunctionRef("m:r"), equals_forward=True)
    assert case.judging.tolerance == StatedTolerance(1.0, 1e-3)
    assert case.judging.freeze is False
    assert (case.judging.samples, case.seed, case.origin.tags) == (5, 7, ("slow", "gpu"))
    assert case.expected.pairs == (PairRule("d?/d*", "skip", 1.0, 2.0, "no"),)
    x, y, z = case.tensors
    assert (x.domain, x.scale, x.min_gap, x.differentiate) == ((-5.0, math.inf), 2.0, 0.1, False)
    assert (y.domain, y.is_differentiable) == ((-math.inf, 5.0), True)
    assert (z.dtype, z.source) == ("bool", Source("bool", {"probability": 0.25}))
    assert case.dtype == "bfloat16"


def test_ops_over_defaults(cases_of):
    a, b = cases_of("""
        defaults:
          samples: 4
          tags: [all]
          inputs: {x: {shape: [2], normal: {stddev: 3}}, n: {value: 1, dtype: int32}}
        ops:
          - op: a
            forward: m:a
          - op: b
            forward: m:b
            tags: [own]
            inputs: {n: {value: 2}, x: {uniform: {low: 0, high: 1}}}
    """)
    assert (a.judging.samples, a.origin.tags, a.origin.line) == (4, ("all",), 6)
    assert (b.judging.samples, b.origin.tags, b.origin.line) == (4, ("own",), 8)
    assert [tensor.name for tensor in a.tensors] == ["x", "n"]
    # b names all inputs: their order is its own, as it is forward's positional order.
    assert [(tensor.name, tensor.source.kind) for tensor in b.tensors] == [("n", "value"), ("x", "uniform")]
    assert b.tensors[1].shape == (2,)


def test_a_case_replaces_generators_and_shapes_but_keeps_the_rest(cases_of):
    base, drawn, fixed, spd = cases_of("""
        op: f
        forward: m:f
        inputs: {x: {shape: [2, 2], uniform: {low: 0, high: 1}, away_from: [0], min_gap: 0.01, scale: 3}}
        cases:
          - {name: drawn, inputs: {x: {normal: {mean: 1}}}}
          - {name: fixed, inputs: {x: {value: 1, shape: [3]}}}
          - {name: spd, inputs: {x: {spd: true}}}
    """)
    assert base.tensors[0].source.kind == "uniform"
    assert drawn.tensors[0].source == Source("normal", {"mean": 1.0})
    assert (drawn.tensors[0].away_from, drawn.tensors[0].min_gap) == ((0.0,), 0.01)
    assert (fixed.tensors[0].shape, fixed.tensors[0].away_from, fixed.tensors[0].min_gap) == ((3,), (), None)
    assert spd.tensors[0].scale == 3


def test_lists_merge_elementwise_if_of_one_length(cases_of):
    _, same, longer = cases_of("""
        op: f
        forward: m:f
        inputs: {v: [{shape: [2]}, {shape: [3], dtype: float32}]}
        cases:
          - {name: same, inputs: {v: [{}, {shape: [4]}]}}
          - {name: longer, inputs: {v: [{shape: [1]}, {shape: [1]}, {shape: [1]}]}}
    """)
    assert [(tensor.shape, tensor.dtype) for tensor in same.tensors] == [((2,), "float64"), ((4,), "float32")]
    assert [tensor.dtype for tensor in longer.tensors] == ["float64"] * 3


def test_a_template_runs_only_its_cases(cases_of):
    cases = cases_of("""
        op: f
        forward: m:f
        inputs: {x: , y: {shape: [2]}}
        cases:
          - {name: default, inputs: {x: {shape: [1]}}}
          - {name: b, inputs: {x: {value: 2}}}
    """)
    assert [(case.name, case.tensors[0].shape) for case in cases] == [("default", (1,)), ("b", ())]


def test_rules_of_a_case_come_last(cases_of):
    _, case = cases_of("""
        op: f
        forward: m:f
        inputs: {x: {shape: [1]}}
        pairs: {dy/dx: {expect: zero, atol: 1}, "dy/*": {expect: skip}}
        cases: [{name: a, pairs: {dy/dx: {expect: disconnected}}}]
    """)
    assert [(rule.glob, rule.expect, rule.atol) for rule in case.expected.pairs] == [
        ("dy/*", "skip", None),
        ("dy/dx", "disconnected", 1.0),
    ]


def test_dtypes_leave_named_dtypes_alone(cases_of):
    (case,) = cases_of("""
        op: f
        forward: m:f
        dtypes: [float16]
        outputs: {y: , z: {dtype: float32}}
        inputs: {n: {shape: [2], dtype: int8}, b: {shape: [2], bool: true}, x: {shape: [2]}}
    """)
    assert [tensor.dtype for tensor in case.tensors] == ["int8", "bool", "float16"]
    assert [output.dtype for output in case.outputs] == ["float16", "float32"]
    assert (case.dtype, case.origin.variant) == ("float16", "float16")


def test_a_value_must_fit_each_dtype(faults_of):
    assert faults_of("""
        op: f
        forward: m:f
        dtypes: [complex64, float32]
        inputs: {x: {value: [1+2j]}}
    """) == ["a.yaml:4: inputs.x.value[0]: must be a number for dtype float32, but got '1+2j'"]
