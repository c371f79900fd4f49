"""Structured inputs: their forms, the labels of their tensors, what is merged, and their faults."""
# ruff: noqa: E501 (a fault's wording stands on one line, where a search finds it)

from __future__ import annotations

import pytest

from gradcheck_cli.spec.case import Form
from tests.spec.fault_table import faults_in

HEAD = "op: f\nforward: m:f\n"


@pytest.fixture
def read(cases_of):
    """Return a function from the text of `inputs` to the one case."""

    def read(inputs, head=HEAD):
        (case,) = cases_of(f"{head}inputs: {inputs}\n")
        return case

    return read


def names(case):
    return [tensor.name for tensor in case.tensors]


def test_a_dict_is_labelled_by_key_in_the_order_written(read):
    case = read("{x: {shape: [1]}, p: {dict: {w: {shape: [3, 2]}, b: {shape: [2]}}}}")
    assert names(case) == ["x", "p.w", "p.b"]
    assert case.arguments[1].form == Form("dict", (Form(), Form()), ("w", "b"))
    assert [tensor.shape for tensor in case.tensors] == [(1,), (3, 2), (2,)]


def test_tuples_lists_and_dicts_nest(read):
    case = read("{p: {tuple: [{shape: [1]}, [{shape: [2]}], {dict: {k: [{list: [{shape: [3]}]}]}}]}}")
    assert names(case) == ["p[0]", "p[1][0]", "p[2].k[0][0]"]
    inner = Form("dict", (Form("list", (Form("list", (Form(),)),)),), ("k",))
    assert case.arguments[0].form == Form("tuple", (Form(), Form("list", (Form(),)), inner))


def test_an_object_is_its_class_and_its_fields(read):
    case = read(
        "{s: {object: 'm:State', fields: {h: {shape: [2]}, c: {object: 'n:C', fields: {d: {shape: []}}}}}}"
    )
    assert names(case) == ["s.h", "s.c.d"]
    (argument,) = case.arguments
    assert argument.form.target == "m:State"
    assert argument.form.targets == ("m:State", "n:C")


# Merging.


@pytest.mark.parametrize(
    ("below", "above", "merged"),
    [
        (
            "{dict: {w: {shape: [2]}, b: {shape: [3]}}}",
            "{dict: {b: {shape: [4]}}}",
            [("x.w", (2,)), ("x.b", (4,))],
        ),
        (
            "{tuple: [{shape: [2]}, {shape: [3]}]}",
            "{tuple: [{}, {shape: [4]}]}",
            [("x[0]", (2,)), ("x[1]", (4,))],
        ),
        ("{tuple: [{shape: [2]}, {shape: [3]}]}", "{tuple: [{shape: [4]}]}", [("x[0]", (4,))]),
        ("{object: 'm:S', fields: {h: {shape: [2]}}}", "{fields: {h: {shape: [3]}}}", [("x.h", (3,))]),
        ("{dict: {w: {shape: [2]}}}", "{shape: [3]}", [("x", (3,))]),
        ("{dict: {w: {shape: [2]}}}", "[{shape: [3]}]", [("x[0]", (3,))]),
        ("{dict: {w: {shape: [2]}}}", "{tuple: [{shape: [3]}]}", [("x[0]", (3,))]),
        ("{dict: {w: {shape: [2]}}}", "{}", [("x.w", (2,))]),
        ("{dict: {w: {shape: [2], value: 1}}}", "{dict: {w: {uniform: {low: 0, high: 1}}}}", [("x.w", (2,))]),
        ("{shape: [2]}", "{dict: {w: {shape: [3]}}}", [("x.w", (3,))]),
    ],
)
def test_a_case_is_merged_over_the_structure_of_its_op(cases_of, below, above, merged):
    cases = cases_of(f"{HEAD}inputs: {{x: {below}}}\ncases: [{{name: a, inputs: {{x: {above}}}}}]\n")
    assert [(tensor.name, tensor.shape) for tensor in cases[1].tensors] == merged


def test_where_nonzeros_are_is_replaced_whole(cases_of):
    cases = cases_of(
        HEAD + "inputs: {x: {shape: [3], sparse: {indices: [[0], [2]]}}}\n"
        "cases: [{name: a, inputs: {x: {sparse: {nnz: 1}}}}]\n"
    )
    assert [case.tensors[1].shape for case in cases] == [(2,), (1,)]


# Faults.


@pytest.mark.parametrize(
    ("written", "fault"),
    faults_in(
        """
{dict: {w: {shpe: [2]}}} => inputs.x.dict.w.shpe: unknown key. Did you mean 'shape'?
{dct: {w: {shape: [2]}}} => inputs.x.dct: unknown key. Did you mean 'dict'?
{dict: {w: {dtype: float64}}} => inputs.x.dict.w.shape: is missing; write the dimensions, such as [3, 2] ([] for a scalar)
{dict: {w: {shape: [2]}}, shape: [2]} => inputs.x.shape: must not stand beside dict: a structure has no values of its own. Write it in each tensor of the structure, or remove it
{tuple: {a: null}} => inputs.x.tuple: must be a list of one or more inputs, but got a mapping
{tuple: []} => inputs.x.tuple: must be a list of one or more inputs, but got []
{dict: {}} => inputs.x.dict: must be a mapping of names to inputs, but got an empty mapping
{dict: {b c: {shape: [2]}}} => inputs.x.dict.b c: must be a name without spaces, slashes, brackets, *, ?, comma or colon, but got 'b c'
[[{shape: [2], dtype: x}]] => inputs.x[0][0].dtype: must be a TensorFlow dtype, but got 'x'. Possible: float16,
{object: State, fields: {h: null}} => inputs.x.object: must be module:Class, but got 'State'
{object: 'm:S'} => inputs.x.fields: is missing; write the fields of the object, such as {h: {shape: [2]}}
{fields: {h: {shape: [2]}}} => inputs.x.object: is missing; name the class of the fields, as module:Class
{tuple: [{dict: {k: {shape: [-1]}}}]} => inputs.x.tuple[0].dict.k.shape[0]: must be an integer of 0 or more, but got -1
"""
    ),
)
def test_a_fault_names_its_place(faults_of, written, fault):
    (found,) = faults_of(f"{HEAD}inputs:\n  x: {written}\n")
    assert found.startswith(f"a.yaml:4: {fault}")


def test_two_tensors_of_one_label(faults_of):
    assert faults_of(f"{HEAD}inputs:\n  x: {{dict: {{b: {{shape: [2]}}}}}}\n  x.b: {{shape: [2]}}\n") == [
        "a.yaml:5: inputs.x.b: must have labels that differ, but two tensors are 'x.b'. Rename one"
    ]


def test_a_case_may_not_add_a_key(faults_of):
    assert faults_of(
        HEAD
        + "inputs: {x: {dict: {weight: {shape: [2]}}}}\ncases:\n"
        + "  - {name: a, inputs: {x: {dict: {wieght: {shape: [2]}}}}}\n"
    ) == [
        (
            "a.yaml:5: cases[0].inputs.x.dict.wieght: must be an input of the op, but got 'wieght'. "
            "Did you mean 'weight'?"
        )
    ]


def test_an_op_type_takes_tensors_and_lists_of_them(faults_of, read):
    assert faults_of(
        "op: f\nop_type: MatMul\ninputs:\n  a: {dict: {w: {shape: [2]}}}\n  b: [{tuple: [{shape: [2]}]}]\n"
        "  c: {shape: [2], sparse: {nnz: 1}}\n"
    ) == [
        (
            "a.yaml:4: inputs.a: must be a tensor or a list of tensors for an op type, but got a structure "
            "(dict). "
            "Name the op type's own arguments"
        ),
        (
            "a.yaml:5: inputs.b[0]: must be a tensor or a list of tensors for an op type, but got a "
            "structure (tuple). Name the op type's own arguments"
        ),
        (
            "a.yaml:6: inputs.c: must be a tensor or a list of tensors for an op type, but got a sparse one. "
            "Name the op type's own arguments, such as its indices and its values"
        ),
    ]
    assert read("{a: {dict: {w: {shape: [2]}}}}", "op: f\nop_type: Exp\nforward: m:f\nbinding: override\n"
                "gradient: m:g\n").tensors  # fmt: skip


@pytest.mark.parametrize("composite", ["{shape: [2], sparse: {nnz: 1}}", "{ragged: {row_lengths: [1]}}"])
def test_a_numpy_function_takes_no_composite_tensors(faults_of, composite):
    head = "op: f\nforward: m:f\ngradient: m:g\nbinding: py_func\noutputs: {y: {dtype: float64}}\n"
    (fault,) = faults_of(f"{head}inputs: {{x: {{dict: {{k: {composite}}}}}}}\n")
    assert "inputs.x.dict.k: must be of arrays for a NumPy forward, but got a" in fault
    assert fault.endswith("Give its parts as inputs of their own, and build it in the forward")


# Pairs of outputs that may turn out to be structures.


@pytest.mark.parametrize(
    "glob", ["dy/dp.w", "dy.loss/dp.w", "dy[0]/dp.w", "dy.a[1].b/dp.*", "d*/dp.w", "dy.*/d*"]
)
def test_a_rule_may_be_of_a_part_of_an_output(read, glob):
    head = f"{HEAD}outputs: [y]\npairs: {{'{glob}': {{expect: zero}}}}\n"
    assert read("{p: {dict: {w: {shape: [2]}}}}", head).expected.pairs[0].glob == glob


@pytest.mark.parametrize("glob", ["dz.loss/dp.w", "dy.loss/dp.v", "dyloss/dp.w", "dy.loss"])
def test_but_not_of_another_output_or_input(faults_of, glob):
    (fault,) = faults_of(
        f"{HEAD}outputs: [y]\npairs: {{'{glob}': {{expect: zero}}}}\n"
        "inputs: {p: {dict: {w: {shape: [2]}}}}\n"
    )
    assert f"must match a pair, but got '{glob}'" in fault
