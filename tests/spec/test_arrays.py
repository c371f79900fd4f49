"""Values from files: read, checked, and read again."""

import tracemalloc

import numpy as np
import pytest

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.spec.values import arrays
from gradcheck_cli.spec.values.draw_values import draw
from tests.spec.fault_table import faults_in


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(2, 3))
    np.savez(
        tmp_path / "b.npz", weights=np.arange(3), c=np.array([1 + 1j]), t=np.array(["x"]), k=np.array([True])
    )
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "junk.npy").write_bytes(b"junk")
    (tmp_path / "junk.npz").write_bytes(b"PK\3\4junk")
    (tmp_path / "z.npy").write_bytes((tmp_path / "b.npz").read_bytes())
    (tmp_path / "n.npz").write_bytes((tmp_path / "a.npy").read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("{file: a.npy}", [[0, 1, 2], [3, 4, 5]]),
        ("{file: a.npy, shape: [2, 3], dtype: int8}", [[0, 1, 2], [3, 4, 5]]),
        ("{file: 'b.npz:weights'}", [0, 1, 2]),
        ("{file: 'b.npz:c', dtype: complex64}", [1 + 1j]),
        ("{file: 'b.npz:t', dtype: string}", ["x"]),
        ("{file: 'b.npz:k', dtype: bool}", [True]),
    ],
)
@pytest.mark.usefixtures("files")
def test_files(input_of, written, values):
    case, tensor = input_of(written)
    for sample in (0, 1):
        np.testing.assert_array_equal(draw(case, tensor, sample), values)


@pytest.mark.parametrize(
    ("written", "message"),
    faults_in(
        """
{file: aa.npy} => must be a file, but got 'aa.npy', which doesn't exist. Did you mean 'a.npy'?
{file: 'b.npz:weight'} => must name an array in 'b.npz', but got 'weight'. Did you mean 'weights'?
{file: 'b.npz:zzz'} => must name an array in 'b.npz', but got 'zzz'. It holds: weights, c, t, k
{file: a.npy, shape: [3, 2]} => must hold an array of shape [3, 2], but got [2, 3]. Change one of them
{file: 'b.npz:c'} => must hold values for dtype float64, but got an array of complex128
{file: 'a.npy', dtype: bool} => must hold values for dtype bool, but got an array of float64
{file: a.npy, domain: {low: 1}} => must stay inside the domain 1.0 to .inf, but holds values from 0.0 to 5.0
{file: o.npy} => must be an array without pickled objects, but 'o.npy' gave: Object arrays cannot
{file: junk.npy} => must be an array without pickled objects, but 'junk.npy' gave:
{file: z.npy} => must be an array without pickled objects, but 'z.npy' gave: the other of the two
{file: 'n.npz:a'} => must be an array without pickled objects, but 'n.npz' gave: the other of the two
{file: 'junk.npz:a'} => must be an array without pickled objects, but 'junk.npz' gave:
"""
    ),
)
@pytest.mark.usefixtures("files")
def test_faulty_files(faults_of, written, message):
    (fault,) = faults_of(f"op: f\nforward: m:f\ninputs:\n  x: {written}\n")
    assert fault.startswith(f"a.yaml:4: inputs.x.file: {message}")


@pytest.mark.parametrize(
    ("array", "dtype", "message"),
    [
        ([1.5], "int8", "must hold integers for dtype int8, but got fractions"),
        ([np.nan], "int8", "must hold integers for dtype int8, but got fractions"),
        ([300], "int8", "must hold integers from -128 to 127, but got 300 to 300"),
        ([1e5], "float16", "must hold values of at most 65504 in size for dtype float16"),
    ],
)
def test_files_that_do_not_fit(tmp_path, faults_of, array, dtype, message):
    np.save(tmp_path / "a.npy", np.array(array))
    (fault,) = faults_of(f"op: f\nforward: m:f\ninputs:\n  x: {{file: a.npy, dtype: {dtype}}}\n")
    assert fault == f"a.yaml:4: inputs.x.file: {message}"


def test_a_file_that_changes_after_validation(files, input_of):
    case, tensor = input_of("{file: a.npy}")
    np.save(files / "a.npy", np.zeros(3))
    with pytest.raises(CaseFailedError, match=r"must hold an array of shape \[2, 3\], but got \[3\]"):
        draw(case, tensor, 0)
    (files / "a.npy").unlink()
    with pytest.raises(CaseFailedError, match="which doesn't exist"):
        draw(case, tensor, 0)


@pytest.mark.parametrize("name", ["b.npz:zeros", "a.npy"])
def test_an_array_that_is_too_large_is_refused_before_it_is_in_memory(tmp_path, faults_of, monkeypatch, name):
    monkeypatch.setattr(arrays, "MAX_BYTES", 2**20)
    values = np.zeros(8_000_000)
    np.savez_compressed(tmp_path / "b.npz", zeros=values)
    np.save(tmp_path / "a.npy", values)
    tracemalloc.start()
    try:
        (fault,) = faults_of(f"op: f\nforward: m:f\ninputs:\n  x: {{file: '{name}'}}\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    told = "must hold at most 1048576 bytes, but holds 64000128. Save a part of it"
    assert fault == f"a.yaml:4: inputs.x.file: {told}"
    assert peak < values.nbytes / 2


def test_an_archive_that_is_cut_or_changed_is_refused(tmp_path, faults_of):
    np.savez(tmp_path / "b.npz", x=np.arange(1000.0))
    whole = (tmp_path / "b.npz").read_bytes()
    for content in (whole[:-200], whole[:3000] + b"????" + whole[3004:], whole[:60] + b"~" + whole[61:]):
        (tmp_path / "b.npz").write_bytes(content)
        (fault,) = faults_of("op: f\nforward: m:f\ninputs:\n  x: {file: 'b.npz:x'}\n")
        assert fault.startswith("a.yaml:4: inputs.x.file: must be an array without pickled objects, but")
