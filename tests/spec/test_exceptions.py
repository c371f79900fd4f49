"""Documents of exceptions among specs: read, faulted by file and line, and no specs."""
# ruff: noqa: E501 (a fault's wording stands on one line, where a search finds it)

from __future__ import annotations

import pytest

from gradcheck_cli.errors import NoSpecsError, SpecError
from gradcheck_cli.spec.load import load, load_cases
from tests.spec.fault_table import faults_in

GOOD = """exceptions:
  NcclReduce: {kind: gpu, reason: needs two}
  TopK:
    kind: removed
    reason: since GraphDef 7
    tensorflow: ">=2.18"
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        (tmp_path / name).write_text(text)

    return write


def faults(*paths):
    with pytest.raises(SpecError) as caught:
        load(paths)
    return [str(fault) for fault in caught.value.faults]


def test_they_lie_among_specs(write):
    write("a.yaml", "op: f\nop_type: Tanh\ninputs: {x: {shape: [2]}}\n---\n" + GOOD)
    loaded = load(["a.yaml"])
    assert [case.op for case in loaded.cases] == ["f"]
    first, second = loaded.exceptions
    assert (first.op_type, first.kind, first.reason, first.place) == (
        "NcclReduce",
        "gpu",
        "needs two",
        "a.yaml:6",
    )
    assert (second.place, second.tensorflow) == ("a.yaml:7", ">=2.18")
    assert first.holds("2.16.1")
    assert second.holds("2.21.0")
    assert not second.holds("2.16.1")
    assert load_cases(["a.yaml"]) == loaded.cases


def test_a_kind_may_be_the_key_of_its_reason(write):
    write("a.yaml", GOOD)
    write(
        "b.yaml",
        GOOD.replace("kind: gpu, reason: ", "gpu: ").replace("kind: removed\n    reason:", "removed:"),
    )
    told = [
        [(one.op_type, one.kind, one.reason, one.tensorflow) for one in load([name]).exceptions]
        for name in ("a.yaml", "b.yaml")
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("entry", "fault"),
    faults_in(
        """
{gpu: 3} => a.yaml:1: exceptions.A.gpu: must be text, but got 3. Put numbers and the like in quotes
{gpu: why, reason: why} => a.yaml:1: exceptions.A.gpu: unknown key. Possible keys: kind, reason, tensorflow
{gup: why} => a.yaml:1: exceptions.A.gup: unknown key. Possible keys: kind, reason, tensorflow
"""
    ),
)
def test_a_wrong_short_entry_is_a_fault(write, entry, fault):
    write("a.yaml", f"exceptions: {{A: {entry}}}")
    assert fault in faults("a.yaml")


def test_alone_they_are_no_specs(write):
    write("a.yaml", GOOD)
    with pytest.raises(NoSpecsError, match="only exceptions"):
        load_cases(["a.yaml"])
    assert len(load(["a.yaml"]).exceptions) == 2


@pytest.mark.parametrize(
    ("text", "fault"),
    faults_in(
        r"""
exceptions:\n => a.yaml:1: exceptions: must have a value, but got null. Write one, or leave the key out
exceptions: {}\n => a.yaml:1: exceptions: must be a mapping of op types to {kind, reason}, but got an empty mapping
exceptions: [TopK]\n => a.yaml:1: exceptions: must be a mapping of op types to {kind, reason}, but got ['TopK']
exceptions:\n  TopK: gone\n => a.yaml:2: exceptions.TopK: must be a mapping, such as {kind: gpu, reason: has a kernel for GPUs only}, but got 'gone'
exceptions:\n  TopK: {kind: gpu}\n => a.yaml:2: exceptions.TopK.reason: is missing
exceptions:\n  TopK: {kind: gpus, reason: a}\n => a.yaml:2: exceptions.TopK.kind: must be one of gpu, tpu, dtensor, removed, raises, nothing, crash, other, but got 'gpus'. Did you mean 'gpu'?
exceptions:\n  TopK: {kind: gpu, reson: a, reason: b}\n => a.yaml:2: exceptions.TopK.reson: unknown key. Did you mean 'reason'?
exceptions:\n  TopK: {kind: gpu, reason: b, tensorflow: new}\n => a.yaml:2: exceptions.TopK.tensorflow: must be versions of TensorFlow from 2.16 on, such as '>=2.18' or '>=2.16, <2.20', but got 'new'
<GOOD>ops: []\n => a.yaml:7: ops: unknown key. Possible keys: exceptions
""",
        GOOD=GOOD,
    ),
)
def test_faults(write, text, fault):
    write("a.yaml", text)
    assert faults("a.yaml") == [fault]


def test_an_op_type_is_excepted_once(write):
    write("a.yaml", GOOD)
    write("b.yaml", "exceptions:\n  TopK: {kind: gpu, reason: another}\n")
    assert faults("a.yaml", "b.yaml") == [
        "b.yaml:2: exceptions.TopK: must be excepted once, but a.yaml:3 does so too. Remove one"
    ]
