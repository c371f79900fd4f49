"""The wording of every fault beside those of inputs, with its line; how faults are collected."""
# ruff: noqa: E501 (a fault's wording stands on one line, where a search finds it)

import pytest

from tests.spec.fault_table import faults_in

HEAD = "op: f\nforward: m:f\n"
ONE = HEAD + "inputs: {x: {shape: [2]}}\n"
OPS = faults_in(
    r"""
forward: m:f => 1: inputs: is missing; name each input of forward, such as {x: {shape: [3]}}
inputs: {x: {value: 1}} => 1: forward: is missing; write forward: module:function, or op_type for a raw op
forward: m\ninputs: {x: {value: 1}} => 1: forward: must be module:attribute, or {numpy: module:function}, but got 'm'
forward: m:f:g\ninputs: {x: {value: 1}} => 1: forward: must be module:attribute, or {numpy: module:function}, but got 'm:f:g'
forward: {numpi: 'm:f'}\ninputs: {x: {value: 1}} => 1: forward: must be module:attribute, or {numpy: module:function}, but got a mapping
<ONE>op_type: MatMul => 4: op_type: must stand without forward, but got both with binding autodiff. Drop one, or write binding: override
<ONE>binding: override\ngradient: m:g => 1: op_type: is missing; binding override replaces the gradient of this op type
<ONE>binding: autodiff\ngradient: m:g => 5: gradient: must be left out with binding autodiff, but got a function. Drop it, or write binding: custom_gradient
<ONE>binding: custom_gradient => 1: gradient: is missing; binding custom_gradient attaches it to the forward
<ONE>binding: pyfunc\ngradient: m:g => 4: binding: must be one of autodiff, custom_gradient, override, py_func, defun, but got 'pyfunc'. Did you mean 'py_func'?
<ONE>binding: py_func\ngradient: m:g => 1: outputs: is missing; binding py_func needs it, such as {y: {dtype: float32}}
<ONE>binding: defun\ngradient: m:g\noutputs: [y] => 6: outputs: must be a mapping of names to dtypes for binding defun, but got ['y']. Write {y: {dtype: float32}}
<ONE>binding: py_func\ngradient: m:g\noutputs: {y: {shape: [2]}} => 6: outputs.y.dtype: is missing; binding py_func needs the dtype of each output
op_type: Exp\nbinding: defun\ngradient: m:g\noutputs: {y: {dtype: float32}}\ninputs: {x: {value: 1}} => 1: forward: is missing; binding defun wraps a function, not an op type
op_type: Exp\nbuild: {a: 1}\ninputs: {x: {value: 1}} => 2: build: must go with forward, but got op_type alone. Use attrs
forward: {numpy: 'm:f'}\ninputs: {x: {value: 1}} => 1: forward: must be a function of tensors for binding autodiff, but got a NumPy function. Write gradient and binding: py_func
<ONE>outputs: [y, y] => 4: outputs[1]: must be unique, but got 'y' twice. Rename one
<ONE>outputs: y => 4: outputs: must be a list of names, or a mapping of names to {dtype, shape}, but got 'y'
<ONE>outputs: [] => 4: outputs: must be a list of names, but got []
<ONE>outputs: [a/b] => 4: outputs[0]: must be a name without spaces, slashes, brackets, *, ?, comma or colon, but got 'a/b'
<HEAD>inputs:\n  'a b': {value: 1}\n => 4: inputs.a b: must be a name without spaces, slashes, brackets, *, ?, comma or colon, but got 'a b'
<HEAD>inputs: {}\n => 3: inputs: must be a mapping of names to inputs, but got an empty mapping
<ONE>outputs: [y]\npairs:\n  dy/dxx: {expect: zero} => 6: pairs.dy/dxx: must match a pair, but got 'dy/dxx'. Did you mean 'dy/dx'?
<ONE>pairs:\n  dy/dx: 0 => 5: pairs.dy/dx: must be a mapping, such as {expect: disconnected}, but got 0
<HEAD>inputs:\n  x: 3.0 => 4: inputs.x: must be a mapping, such as {shape: [3, 2]}, but got 3.0
<ONE>tolerance:\n  rtol: '1e-6' => 5: tolerance.rtol: must be a finite number of 0 or more, but got '1e-6'. Write it without quotes
<ONE>pairs:\n  dy/dx: {expect: zer} => 5: pairs.dy/dx.expect: must be one of pass, mismatch, disconnected, zero, skip, but got 'zer'. Did you mean 'zero'?
<ONE>pairs:\n  atol: {atl: 1} => 5: pairs.atol.atl: unknown key. Did you mean 'atol'?
<ONE>tolerance:\n  atol: -1 => 5: tolerance.atol: must be a finite number of 0 or more, but got -1
<ONE>tolerance:\n  rtol: .inf => 5: tolerance.rtol: must be a finite number of 0 or more, but got .inf
<ONE>modes: 3 => 4: modes: must be a list of modes, such as [graph, eager], but got 3
<ONE>modes: egaer => 4: modes: must be one of graph, dynamic, eager, xla, but got 'egaer'. Did you mean 'eager'?
<ONE>modes: [] => 4: modes: must be a list of modes, such as [graph, eager], but got []
<ONE>modes: [egaer] => 4: modes[0]: must be one of graph, dynamic, eager, xla, but got 'egaer'. Did you mean 'eager'?
<ONE>modes: [xla, xla] => 4: modes[1]: must be unique, but got 'xla' twice. Remove one
<ONE>device: GPU => 4: device: must be a device with its number, such as GPU:0 or CPU:0, but got 'GPU'
<ONE>covers: 3 => 4: covers: must be a list of op types, such as [MatMul], but got 3
<ONE>covers: [] => 4: covers: must be a list of op types, such as [MatMul], but got []
<ONE>tensorflow: 2.18 => 4: tensorflow: must be versions of TensorFlow from 2.16 on, such as '>=2.18' or '>=2.16, <2.20', but got 2.18
<ONE>tensorflow: 2.18.0 => 4: tensorflow: must be versions of TensorFlow from 2.16 on, such as '>=2.18' or '>=2.16, <2.20', but got '2.18.0'
<ONE>tensorflow: '' => 4: tensorflow: must be versions of TensorFlow from 2.16 on, such as '>=2.18' or '>=2.16, <2.20', but got ''
<ONE>samples: 0 => 4: samples: must be an integer from 1 to 10000, but got 0
<ONE>power: {size: 1, miss: 2} => 4: power.miss: must be a number above 0 and below 1, but got 2
<ONE>timeout: 0 => 4: timeout: must be a finite number above 0, but got 0
<ONE>timeout: 60 s => 4: timeout: must be a finite number above 0, but got '60 s'
<ONE>samples: 1.0 => 4: samples: must be an integer from 1 to 10000, but got 1.0
<ONE>seed: -1 => 4: seed: must be an integer from 0 to 2**63 - 1, but got -1
<ONE>tags: 3 => 4: tags: must be a list of texts, but got 3
<ONE>tags: [1] => 4: tags[0]: must be text, but got 1. Put numbers and the like in quotes
<ONE>reason: => 4: reason: must have a value, but got null. Write one, or leave the key out
<ONE>expect: zero => 4: expect: must be one of pass, mismatch, but got 'zero'
<ONE>tolerance: 1e-3 => 4: tolerance: must be a mapping, such as {rtol: 0.0001}, but got 0.001
<ONE>attrs: [1] => 4: attrs: must be a mapping, such as {transpose_a: true}, but got [1]
<ONE>reference_forward: true => 4: reference_forward: must go with reference, but got none. Write reference: module:function
<ONE>dtypes: [int32] => 4: dtypes[0]: must be a float or complex dtype, but got 'int32'. Possible: float16, bfloat16, float32, float64, complex64, complex128
<ONE>dtypes: [float32, float32] => 4: dtypes[1]: must be unique, but got 'float32' twice. Remove one
<ONE>dtypes: [] => 4: dtypes: must be a list of dtypes, such as [float32, float64], but got []
<HEAD>inputs: {x: {value: 1, dtype: float64}}\ndtypes: [float32] => 4: dtypes: must have an input to set, but every input names its own dtype. Remove those, or dtypes
<ONE>cases: [{}] => 4: cases[0].name: is missing; give the case a name
<ONE>cases: [3] => 4: cases[0]: must be a mapping, but got 3
<ONE>cases:\n  - {name: a}\n  - {name: a} => 6: cases[1].name: must be unique, but got 'a', which line 5 has. Rename one
<ONE>cases:\n  - {name: a, inputs: {xs: {value: 1}}} => 5: cases[0].inputs.xs: must be an input of the op, but got 'xs'. Did you mean 'x'?
<ONE>cases:\n  - {name: a, inputs: {x: {value: [1, 2, 3]}}} => 5: cases[0].inputs.x.value: must broadcast to the shape [2], but got values of shape [3]. Change one of them
<ONE>second_order: [float32] => 4: second_order[0]: must be a mode or a dtype of a case (float64, graph), but got 'float32'. Add it to modes or dtypes, or remove it
<ONE>second_order: [graph, xla] => 4: second_order[1]: must be a mode or a dtype of a case (float64, graph), but got 'xla'. Add it to modes or dtypes, or remove it
<ONE>cases:\n  - {name: a, modes: [eager], second_order: [graph]} => 5: cases[0].second_order[0]: must be a mode or a dtype of a case (eager, float64), but got 'graph'. Add it to modes or dtypes, or remove it
<ONE>tensorflow: '<2' => 4: tensorflow: must be versions of TensorFlow from 2.16 on, such as '>=2.18' or '>=2.16, <2.20', but got '<2'
<ONE>cases:\n  - {name: a, forwrd: 'm:f'} => 5: cases[0].forwrd: unknown key. Possible keys:
<HEAD>inputs: {x: , y: }\ncases:\n  - {name: a, inputs: {x: {value: 1}}} => 3: inputs.y.shape: is missing; write the dimensions, such as [3, 2] ([] for a scalar)
<ONE>op: g => 4: op: duplicate key; it stands on line 1 already
op: a b\n<REST> => 1: op: must be a name without spaces or commas, but got 'a b'. Quote it if it is a number
op: 3\n<REST> => 1: op: must be a name without spaces or commas, but got 3. Quote it if it is a number
<ONE>---\n<ONE> => 5: op: must be unique in a file, but got 'f', which a.yaml:1 has. Rename one
<ONE>---\n<REST> => 5: op: is missing; only the op of a file with a single op is named after the file
<ONE>---\n- 1 => 5: must be a spec, but got [1]. Write op, forward and inputs
<ONE>---\n => 4: must be a spec, but got nothing. Write op, forward and inputs
ops: {} => 1: ops: must be a list of ops, but got an empty mapping. Write one op each
ops:\n - 3 => 2: ops[0]: must be a mapping, but got 3. Write op, forward and inputs
default: 1\nops:\n - forward: m:f\n   inputs: {x: {value: 1}} => 1: default: unknown key. Did you mean 'defaults'?
defaults: {sample: 1}\nops:\n - forward: m:f\n   inputs: {x: {value: 1}} => 1: defaults.sample: unknown key. Did you mean 'samples'?
defaults: {inputs: {x: {value: a}}}\nops:\n - forward: m:f\n - {op: b, op_type: Exp} => 1: defaults.inputs.x.value: must be a number for dtype float64, but got 'a'
defaults: {inputs: {x: {shape: [2], uniform: [0, 1]}}}\nops:\n - forward: m:f\n   inputs: {x: {uniform: {low: 3}}} => 4: ops[0].inputs.x.uniform.high: is missing; write both low and high
defaults: 3\nops:\n - forward: m:f\n   inputs: {x: {value: 1}} => 1: defaults: must be a mapping, such as {dtypes: [float32, float64]}, but got 3
# nothing\n => must hold a spec, but is empty. Write op, forward and inputs
""",
    ONE=ONE,
    HEAD=HEAD,
    REST=ONE.removeprefix("op: f\n"),
)


@pytest.mark.parametrize(
    ("text", "said"), [*OPS, (ONE + '"a\\nb": 1', "4: a\\nb: unknown key. Possible keys: ")]
)
def test_ops(faults_of, text, said):
    place = "a.yaml:" if said[0].isdecimal() else "a.yaml: "
    assert any(fault.startswith(f"{place}{said}") for fault in faults_of(text))


def test_every_fault_at_once_and_none_that_only_follows(faults_of):
    found = faults_of("""
        op: huber
        forwrd: huber:huber
        gradient: huber:grad
        inputs:
          x: {shpe: [3]}
          y:
            shape: [2]
            dtype: flaot32
          z: {shape: [3, 2], spd: true}
        pairs: {dy/dq: {}}
        outputs: [y]
        samples: none
    """)
    assert found == [
        "a.yaml:2: forwrd: unknown key. Did you mean 'forward'?",
        "a.yaml:5: inputs.x.shpe: unknown key. Did you mean 'shape'?",
        "a.yaml:8: inputs.y.dtype: must be a TensorFlow dtype, but got 'flaot32'. Did you mean 'float32'?",
        "a.yaml:9: inputs.z.shape: must end in two equal dimensions for spd, but got [3, 2]",
        "a.yaml:12: samples: must be an integer from 1 to 10000, but got 'none'",
    ]


def test_no_rule_is_said_to_match_nothing_where_the_outputs_were_not_read(faults_of):
    found = faults_of(ONE + "binding: pyfunc\noutputs: [y]\npairs: {dy/dx: {}}\n")
    assert [fault.partition(": must")[0] for fault in found] == ["a.yaml:4: binding"]


def test_a_fault_in_the_base_is_said_once_however_many_cases(faults_of):
    found = faults_of(f"{HEAD}inputs: {{x: {{shape: [2], dtype: in}}}}\ncases: [{{name: a}}, {{name: b}}]\n")
    assert len(found) == 1
