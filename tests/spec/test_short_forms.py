"""The short forms of a spec mean what the long ones do, and faults in them name their place."""
# ruff: noqa: E501 (a fault's wording stands on one line, where a search finds it)

import pytest

from gradcheck_cli.errors import NoSpecsError, SpecError
from gradcheck_cli.spec.load import load_cases
from tests.spec.fault_table import faults_in
from tests.support.flat_results import altered

X = "op: f\nforward: m:f\n"
OTHER = "\n---\nop: other\nforward: m:f\ninputs: {x: {shape: [2]}}"
LONG_AND_SHORT = {
    "a shape": (
        X + "inputs: {x: {shape: [2, 3]}, s: {shape: []}, l: [{shape: [2]}, {shape: []}]}",
        X + "inputs: {x: [2, 3], s: [], l: [[2], []]}",
    ),
    "a shape in a structure": (
        X + "inputs: {x: {dict: {a: {shape: [2]}, b: {tuple: [{shape: [3]}]}}}}",
        X + "inputs: {x: {dict: {a: [2], b: {tuple: [[3]]}}}}",
    ),
    "a pair's expectation": (
        X + "inputs: {x: {shape: [2]}}\npairs: {dy/dx: {expect: zero}}",
        X + "inputs: {x: [2]}\npairs: {dy/dx: zero}",
    ),
    "a list of one word": (
        X + "inputs: {x: [2]}\ndtypes: [float32]\nmodes: [eager]\ncovers: [F]\ncases: {b: {tags: [a]}}",
        X + "inputs: {x: [2]}\ndtypes: float32\nmodes: eager\ncovers: F\ncases: {b: {tags: a}}",
    ),
    "two numbers": (
        X + "inputs: {x: {shape: [2], uniform: {low: 1, high: 2}, domain: {low: 0, high: 3}},"
        " n: {shape: [2], dtype: int32, integers: {low: 0, high: 5}},"
        " l: [{shape: [2], normal: {mean: 0, stddev: 2}}]}",
        X + "inputs: {x: {shape: [2], uniform: [1, 2], domain: [0, 3]},"
        " n: {shape: [2], dtype: int32, integers: [0, 5]}, l: [{shape: [2], normal: [0, 2]}]}",
    ),
    "dtypes of a kind": (
        X + "inputs: {x: [2]}\ndtypes: [float16, bfloat16, float32, float64, complex64, complex128]",
        X + "inputs: {x: [2]}\ndtypes: [floating, complex]",
    ),
    "dtypes of a kind and others": (
        X + "inputs: {x: [2]}\ndtypes: [float64, complex64, complex128]",
        X + "inputs: {x: [2]}\ndtypes: [float64, complex]",
    ),
    "an expectation with its reason": (
        X + "inputs: {x: [2]}\npairs: {dy/dx: {expect: zero, reason: flat, atol: 1}}",
        X + "inputs: {x: [2]}\npairs: {dy/dx: {zero: flat, atol: 1}}",
    ),
    "a kind of mismatch with its reason": (
        X + "inputs: {x: [2]}\npairs: {dy/dx: {expect: {mismatch: none}, reason: why}}",
        X + "inputs: {x: [2]}\npairs: {dy/dx: {mismatch: none, reason: why}}",
    ),
    "functions of a module": (
        """
        op: f
        forward: a.b:f
        gradient: {numpy: a.b:g}
        binding: py_func
        inputs: {x: [2]}
        outputs: {y: {dtype: float64}}
        cases: [{name: a, reference: a.b:C.r}, {name: b, reference: c:r}]
        """,
        """
        op: f
        module: a.b
        forward: .f
        gradient: {numpy: .g}
        binding: py_func
        inputs: {x: [2]}
        outputs: {y: {dtype: float64}}
        cases: {a: {reference: .C.r}, b: {reference: c:r}}
        """,
    ),
    "op types that are alike": (
        "ops:\n- {op_type: Sin, inputs: {x: [2]}}\n- {op_type: Cos, inputs: {x: [2]}}",
        "op_type: [Sin, Cos]\ninputs: {x: [2]}",
    ),
    "names by a pattern": (
        """
        ops:
        - {op: tf_Sin, op_type: Sin, inputs: {x: [2]}}
        - {op: tf_Cos, forward: m:cos, covers: [Cos], inputs: {x: [2]}}
        - {op: own, op_type: Tan, inputs: {x: [2]}}
        """,
        """
        defaults: {op: "tf_{op_type}", module: m, inputs: {x: [2]}}
        ops:
        - {op_type: Sin}
        - {forward: .cos, covers: [Cos]}
        - {op: own, op_type: Tan}
        """,
    ),
    "cases by name": (
        X + "inputs: {x: {shape: [2]}}\ncases: [{name: a, inputs: {x: {shape: [3]}}}, {name: b}]",
        X + "inputs: {x: [2]}\ncases: {a: {inputs: {x: [3]}}, b: {}}",
    ),
    "an op type's name, dtypes and constants": (
        """
        op: Gather
        op_type: Gather
        inputs: {params: {shape: [3]}, indices: {value: [0], dtype: int32}}
        """
        + OTHER,
        "op_type: Gather\ninputs: {params: [3]}\nattrs: {indices: [0]}" + OTHER,
    ),
    "a name of tf.raw_ops": (
        "op_type: Sum\nop: s\ninputs: {input: {shape: [3]}, axis: {value: 0, dtype: int32}}",
        "op_type: Sum\nop: s\ninputs: {input: [3]}\nattrs: {axis: 0}",
    ),
    "a dtype that inputs share": (
        """
        op: Slice
        op_type: Slice
        inputs: {input: [3], begin: {value: [0], dtype: int64}, size: {value: [2], dtype: int64}}
        """,
        """
        op: Slice
        op_type: Slice
        inputs: {input: [3], begin: {value: [0], dtype: int64}, size: {value: [2]}}
        """,
    ),
}


@pytest.mark.parametrize("name", LONG_AND_SHORT)
def test_a_short_form_is_the_long_one(cases_of, name):
    long, short = (cases_of(text) for text in LONG_AND_SHORT[name])
    assert [plain(case) for case in short] == [plain(case) for case in long]


def plain(case):
    return altered(case, line=0)


def test_second_order_of_some_dtypes(cases_of):
    found = cases_of(
        """
        op: f
        forward: m:f
        inputs: {x: [2]}
        dtypes: [float32, float64, complex128]
        second_order: [float64, complex128]
        pairs: {d2y/dx.dx: zero}
        """
    )
    assert [(case.dtype, bool(case.judging.second_order), len(case.expected.pairs)) for case in found] == [
        ("float32", False, 0),
        ("float64", True, 1),
        ("complex128", True, 1),
    ]


OP = "op: f\nforward: m:f\ninputs: {x: [2]}\n"


@pytest.mark.parametrize(
    "text",
    [
        "defaults: {second_order: [float64], dtypes: float32}\nops: [{op_type: Tanh, inputs: {x: [2]}}]",
        OP + "second_order: [eager]\ncases: {a: {modes: [graph, eager]}}",
        OP + "second_order: [eager]\nmodes: [eager]\ncases: {a: {modes: [graph]}}",
    ],
)
def test_a_list_under_second_order_is_for_other_ops_too_or_for_some_cases(cases_of, text):
    assert cases_of(text)


def test_a_case_called_default_stands_for_the_ops_own(cases_of):
    found = cases_of("op: f\nforward: m:f\ninputs: {x: [2]}\ncases: {default: {samples: 3}, a: {}}")
    assert [(case.name, case.judging.samples) for case in found] == [("default", 3), ("a", 2)]


SHARED = """
defaults:
  inputs: {x: [2]}
  cases: {small: {inputs: {x: [1]}}, large: {inputs: {x: [9]}}}
  case_sets: {empty: {none: {inputs: {x: [0]}}}}
ops:
- {op: f, forward: "m:f"}
- {op: g, forward: "m:g", cases: {small: {samples: 5}, large: null, own: {}}, cases_from: empty}
- {op: h, forward: "m:h", cases: [{name: alone}]}
"""


def test_cases_extend_those_of_the_defaults_and_null_removes_one(cases_of):
    shapes = {
        (case.op, case.name): (case.tensors[0].shape, case.judging.samples) for case in cases_of(SHARED)
    }
    assert shapes == {
        ("f", "default"): ((2,), 2),
        ("f", "small"): ((1,), 2),
        ("f", "large"): ((9,), 2),
        ("g", "default"): ((2,), 2),
        ("g", "none"): ((0,), 2),
        ("g", "small"): ((1,), 5),
        ("g", "own"): ((2,), 2),
        ("h", "default"): ((2,), 2),
        ("h", "alone"): ((2,), 2),
    }


@pytest.mark.parametrize(
    ("written", "message"),
    faults_in(
        """
cases: {larg: null} => cases.larg: must have a value, or be a case of the defaults that null removes.
cases_from: emty => cases_from: must be a set of case_sets, but got 'emty'. Did you mean 'empty'?
cases_from: [emty] => cases_from[0]: must be a set of case_sets, but got 'emty'. Did you mean 'empty'?
cases: {a: 3} => cases.a: must be a mapping, but got 3.
implicit: true => implicit: must go with reference, but got none.
reference: .r => reference: must be module:attribute, or {numpy: module:function}, but got '.r'
dtypes: [floating, float64] => dtypes[1]: must be unique, but got 'float64' twice.
inputs: {x: {uniform: [1]}} => inputs.x.uniform: must be a mapping, such as {low: -2, high: 2}, but got
inputs: {x: {uniform: [2, 1]}} => inputs.x.uniform
inputs: {x: {uniform: [1, a]}} => inputs.x.uniform[1]: must be a finite number, but got 'a'
module: a b => module: must be the name of a module, but got 'a b'
op_type: [] => op_type: must be text, but got []
pairs: {dy/dx: {zero: null}} => pairs.dy/dx.zero: must have a value, but got null.
pairs: {dy/dx: {zero: a, reason: b}} => pairs.dy/dx.zero: unknown key.
pairs: {dy/dx: {mismatch: valu}} => pairs.dy/dx.mismatch: must be one of value, none,
"""
    ),
)
def test_faults_name_their_place(faults_of, written, message):
    (fault,) = faults_of(SHARED + f'- {{op: i, forward: "m:i", {written}}}\n')
    assert fault.startswith(f"a.yaml:9: ops[3].{message}")


@pytest.mark.parametrize(
    ("text", "message"),
    faults_in(
        r"""
op: 'tf_{op_type}'\nforward: m:f\ninputs: {x: [2]} => a.yaml:1: op_type: is missing; tf_{op_type} needs op_type or covers. Write one of them, or op
op: f\nop_type: [Sin, Cos]\ninputs: {x: [2]} => a.yaml:1: op: must be unique in a file, but got 'f', which a.yaml:1 has. Rename one
op_type: [Sin, 3]\ninputs: {x: [2]} => a.yaml:1: op_type[1]: must be text, but got 3. Put numbers and the like in quotes
"""
    ),
)
def test_faults_of_names_name_their_place(faults_of, text, message):
    assert faults_of(text) == [message]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a function that writes files, by their names without .yaml, and reads their folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specs").mkdir()

    def read(**texts):
        for name, text in texts.items():
            (tmp_path / "specs" / f"{name}.yaml").write_text(text, encoding="utf-8")
        return load_cases(["specs"])

    return read


def test_defaults_of_a_folder_are_under_those_of_a_file(folder):
    found = folder(
        defaults="defaults: {samples: 5, tags: [all], case_sets: {s: {one: {inputs: {x: [1]}}}}}",
        a="defaults: {samples: 3}\nops:\n- {op: f, forward: 'm:f', inputs: {x: [2]}, cases_from: [s]}",
        b="op: g\nforward: m:g\ninputs: {x: [2]}",
    )
    told = [(case.op, case.name, case.judging.samples, case.origin.tags) for case in found]
    assert told == [("f", "default", 3, ("all",)), ("f", "one", 3, ("all",)), ("g", "default", 5, ("all",))]


def test_a_folder_may_name_the_module_and_a_pattern_of_names(folder):
    found = folder(
        defaults="defaults: {op: 'tf_{op_type}', module: folders}",
        a="defaults: {forward: .f, inputs: {x: [2]}}\nops:\n- {covers: [A]}\n- {covers: [B], forward: .g}",
        b="op: h\nmodule: own\nforward: .h\ninputs: {x: [2]}",
    )
    told = [(case.op, case.code.forward.target) for case in found]
    assert told == [("tf_A", "folders:f"), ("tf_B", "folders:g"), ("h", "own:h")]


def test_a_file_of_that_name_with_ops_in_it_is_a_spec(folder):
    found = folder(defaults="op: f\nforward: m:f\ninputs: {x: [2]}")
    assert [case.op for case in found] == ["f"]


def test_a_fault_in_the_defaults_of_a_folder_names_their_file(folder):
    with pytest.raises(SpecError, match=r"^specs/defaults.yaml:1: defaults.sampls: unknown key"):
        folder(defaults="defaults: {sampls: 5}", a="op: f\nforward: m:f\ninputs: {x: [2]}")


def test_a_fault_in_an_input_of_the_defaults_of_a_folder_names_their_file(folder):
    with pytest.raises(SpecError, match=r"^specs/defaults.yaml:1: defaults.inputs.x.value: must"):
        folder(defaults="defaults: {inputs: {x: {shape: [2], value: [1, 2, 3]}}}", a="op: f\nforward: m:f")


def test_defaults_alone_are_no_specs(folder):
    with pytest.raises(NoSpecsError):
        folder(defaults="defaults: {samples: 5}")
