"""The wording of every fault that an input can have, with its line."""
# ruff: noqa: E501 (a fault's wording stands on one line, where a search finds it)

import pytest

from tests.spec.fault_table import faults_in

# What each input stands in: as `x`, on line 4.
HEAD = "op: f\nforward: m:f\n"
INPUTS = faults_in(r"""
{shpe: [3]} => x.shpe: unknown key. Did you mean 'shape'?
{a: {shape: [3]}} => x.a: unknown key. A dict of tensors is written 'dict: {a: ...}'
{shape: [3], min: 0} => x.min: unknown key. Write 'domain: {low: 0}'
{shape: [3], dtype: flaot32} => x.dtype: must be a TensorFlow dtype, but got 'flaot32'. Did you mean 'float32'?
{shape: [3], dtype: Float64} => x.dtype: must be a TensorFlow dtype, but got 'Float64'. Did you mean 'float64'?
{shape: [3], dtype: 64} => x.dtype: must be a TensorFlow dtype, but got 64
{shape: [3], dtype: null} => x.dtype: must have a value, but got null. Write one, or leave the key out
3 => x: must be a mapping, such as {shape: [3, 2]}, but got 3
[3.5] => x[0]: must be a mapping, but got 3.5
[{shape: [1], dtyp: int8}] => x[0].dtyp: unknown key. Did you mean 'dtype'?
[{shape: [1]}, {}] => x[1].shape: is missing; write the dimensions, such as [3, 2] ([] for a scalar)
{shape: [3, -1]} => x.shape[1]: must be an integer of 0 or more, but got -1
{shape: [3, 1.0]} => x.shape[1]: must be an integer of 0 or more, but got 1.0
{shape: [true]} => x.shape[0]: must be an integer of 0 or more, but got true
{shape: 3} => x.shape: must be a list of at most 32 integers, such as [3, 2] ([] for a scalar), but got 3
{shape: [65536, 65536]} => x.shape: must hold at most 2**31 elements, but got [65536, 65536]
{shape: [2], value: [1, 2, 3]} => x.value: must broadcast to the shape [2], but got values of shape [3]. Change one of them
{shape: [], value: [1]} => x.value: must broadcast to the shape [], but got values of shape [1]. Change one of them
{value: [[1, 2], [3]]} => x.value: must have rows of equal length, but got a ragged list
{value: {a: 1}} => x.value: must be a number, text, truth value, or nested lists of them, but got a mapping
{value: [1, null]} => x.value: must be a number, text, truth value, or nested lists of them, but got [1, null]
{value: [1, a]} => x.value[1]: must be a number for dtype float64, but got 'a'
{value: [1, 1+2j]} => x.value[1]: must be a number for dtype float64, but got '1+2j'
{value: true} => x.value: must be a number for dtype float64, but got true
{value: 1e5, dtype: float16} => x.value: must be at most 65504 in size for dtype float16, but got 100000.0
{value: [[1, 300]], dtype: int8} => x.value[0][1]: must be an integer from -128 to 127, but got 300
{value: 1.5, dtype: int8} => x.value: must be an integer from -128 to 127, but got 1.5
{value: .nan, dtype: int8} => x.value: must be an integer from -128 to 127, but got .nan
{value: -1, dtype: uint64} => x.value: must be an integer from 0 to 18446744073709551615, but got -1
{value: 1, dtype: bool} => x.value: must be true or false for dtype bool, but got 1
{value: 1, dtype: string} => x.value: must be text for dtype string, but got 1
{value: 1+2k, dtype: complex64} => x.value: must be a number for dtype complex64, such as 1+2j, but got '1+2k'
{shape: [2], dtype: string} => x: must have a value, file or choice for dtype string, but got none
{shape: [2], value: 1, normal: {}} => x.normal: must have one source of values, but got value and normal. Keep one of them
{shape: [2], uniform: {low: 0}} => x.uniform.high: is missing; write both low and high
{shape: [2], uniform: {low: 0, high: 0}} => x.uniform.high: must be above low, but got 0.0 with low 0.0
{shape: [2], uniform: {low: .nan, high: 0}} => x.uniform.low: must be a finite number, but got .nan
{shape: [2], uniform: {low: 0, high: 1, mid: 2}} => x.uniform.mid: unknown key. Possible keys: low, high
{shape: [2], uniform: {low: 0, high: 1}, dtype: bool} => x.uniform: must go with a float or complex dtype, but got dtype bool. Change the dtype, or how values are made
{shape: [2], uniform: {low: 0, high: 1}, dtype: int32} => x.uniform: must go with a float or complex dtype, but got dtype int32. Change the dtype, or how values are made
{shape: [2], uniform: {low: 0, high: 1}, dtype: string} => x.uniform: must go with a float or complex dtype, but got dtype string. Change the dtype, or how values are made
{shape: [2], uniform: {low: 0, high: 1e5}, dtype: float16} => x.uniform.high: must be at most 65504 in size for dtype float16, but got 100000.0
{shape: [2], normal: {stddev: 0}} => x.normal.stddev: must be a finite number above 0, but got 0
{shape: [2], integers: {low: 0, high: 1.5}} => x.integers.high: must be an integer between -2**63 and 2**64, but got 1.5
{shape: [2], integers: {low: 3, high: 3}} => x.integers.high: must be above low, but got 3 with low 3
{shape: [2], integers: {low: 0, high: 129}, dtype: int8} => x.integers.high: must be at most 128 for dtype int8, but got 129
{shape: [2], integers: {low: -1, high: 3}, dtype: uint8} => x.integers.low: must be at least 0 for dtype uint8, but got -1
{shape: [2], integers: {low: 0, high: 3}, dtype: bool} => x.integers: must go with a float, complex or integer dtype, but got dtype bool. Change the dtype, or how values are made
{shape: [2], choice: []} => x.choice: must be a list of values to choose from, but got []
{shape: [2], choice: [1, a]} => x.choice[1]: must be a number for dtype float64, but got 'a'
{shape: [2], bool: 2} => x.bool: must be true, or a probability from 0 to 1, but got 2
{shape: [2], bool: true, dtype: int8} => x.bool: must go with a bool dtype, but got dtype int8. Change the dtype, or how values are made
{shape: [], one_hot: true} => x.shape: must have at least 1 dimensions for one_hot, but got []
{shape: [3], one_hot: 1} => x.one_hot: must be true, but got 1. Leave the key out for anything else
{shape: [3, 2], spd: true} => x.shape: must end in two equal dimensions for spd, but got [3, 2]
{shape: [3, 3], triangular: lowr} => x.triangular: must be one of lower, upper, but got 'lowr'. Did you mean 'lower'?
{shape: [3], probabilities: true, dtype: complex64} => x.probabilities: must go with a float dtype, but got dtype complex64. Change the dtype, or how values are made
{value: 1, away_from: [0]} => x.away_from: must go with drawn values, but got value: a fixed value can't be moved
{value: 1, min_gap: 1} => x.min_gap: must go with drawn values, but got value: a fixed value can't be moved
{shape: [2, 2], spd: true, away_from: [0]} => x.away_from: must go with uniform, normal, integers, choice or the default, but got spd of dtype float64
{shape: [2], choice: [1, 2], min_gap: 1} => x.min_gap: must go with uniform, normal or the default and a float or complex dtype, but got choice of dtype float64
{shape: [2], away_from: 0} => x.away_from: must be a list of numbers, such as [0], but got 0
{shape: [2], uniform: {low: 0, high: 0.1}, away_from: [0, 0.05, 0.1], domain: {low: 0.099}} => x.away_from: must leave room for drawn values, but less than 1% of what uniform draws is left. Draw from where values are wanted, for example with uniform
{shape: [2], domain: {low: 10}} => x.domain: must leave room for drawn values, but less than 1% of what normal draws is left. Draw from where values are wanted, for example with uniform
{shape: [2], domain: {low: 1, high: 1}} => x.domain.high: must be above low, but got 1.0 with low 1.0
{shape: [2], domain: {low: 1}, dtype: complex64} => x.domain: must go with a float or integer dtype, but got dtype complex64, which has no order
{value: [1, -1], domain: {low: 0}} => x.value[1]: must lie in the domain 0.0 to .inf, but got -1
{value: .nan, domain: {low: 0}} => x.value: must lie in the domain 0.0 to .inf, but got .nan
{shape: [100], uniform: {low: 0, high: 1}, min_gap: 0.1} => x.min_gap: must be at most 0.01 for 100 elements, but got 0.1: they have a length of 1 to share
{shape: [2], scale: 0} => x.scale: must be a finite number above 0, but got 0
{shape: [2], differentiate: no} => x.differentiate: must be true or false, but got 'no'
{file: data.txt} => x.file: must be data.npz:KEY or data.npy, but got 'data.txt'. Save arrays with numpy.save or numpy.savez
{shape: [2], choice: [.nan], domain: {low: 0}} => x.domain: must leave room for drawn values, but less than 1% of what choice draws is left. Draw from where values are wanted, for example with uniform
{file: data.npy} => x.file: must be a file, but got 'data.npy', which doesn't exist
""")
UNUSUAL = [
    ("", "x.shape: is missing; write the dimensions, such as [3, 2] ([] for a scalar)"),
    (f"{{file: {'a' * 5000}.npy}}", f"x.file: must be a file, but got '{'a' * 39}..., which doesn't exist"),
    ('{file: "a\\0.npy"}', "x.file: must be a file, but got 'a\\x00.npy', which doesn't exist"),
]


@pytest.mark.parametrize("key", ["reach", "minimum"])
def test_a_key_that_no_other_is_near_to_gets_the_list_of_keys(faults_of, key):
    # `ragged` is the nearest to `reach`, but nobody means it.
    (fault,) = faults_of(f"{HEAD}inputs:\n  x: {{shape: [3], {key}: 1}}\n")
    assert fault.startswith(
        f"a.yaml:4: inputs.x.{key}: unknown key. Possible keys: shape, dtype, value, file, uniform, normal,"
    )


@pytest.mark.parametrize(("written", "message"), INPUTS + UNUSUAL)
def test_inputs(faults_of, written, message):
    assert faults_of(f"{HEAD}inputs:\n  x: {written}\n") == [f"a.yaml:4: inputs.{message}"]
