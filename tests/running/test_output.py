import os
from types import SimpleNamespace

import pytest

from gradcheck_cli.running.fork_server import LINES, Output
from gradcheck_cli.running.local_workers import OutputFolder

CASE = SimpleNamespace(mode_key=("a/b", "default", "float64", "graph"), mode="graph")


@pytest.fixture
def output():
    output = Output()
    yield output
    output.close()


def test_the_last_lines_of_a_part(output):
    os.write(output.fileno(), b"before\none\ntwo \n\xff\nafter\n")
    start, end = len("before\n"), output.size - len("after\n")
    assert output.tail(start, end) == (("one", "two", "\ufffd"), True)
    assert output.tail(end, end) == ((), True)


def test_more_than_is_shown_is_said_to_be_so(output):
    os.write(output.fileno(), "".join(f"line {number}\n" for number in range(LINES + 1)).encode())
    lines, is_all = output.tail(0, output.size)
    assert (lines[0], lines[-1], is_all) == ("line 1", f"line {LINES}", False)
    os.write(output.fileno(), b"x" * 100_000)
    (line,), is_all = output.tail(0, output.size)
    assert len(line) <= 400
    assert not is_all


def test_each_case_and_mode_has_a_file_of_its_own_which_later_runs_use_again(output, tmp_path):
    folder = OutputFolder(tmp_path)
    keys = [("a/b", "default", "graph"), ("a_b", "default", "graph"), ("A_B", "default", "graph")]
    keys += [("a/b", "default", "eager"), ("a", "b.c", "graph"), ("a.b", "c", "graph")]
    keys += [("ñ" * 400, "c", "graph"), ("ñ" * 401, "c", "graph")]
    cases = [SimpleNamespace(mode_key=(op, name, "float64", mode), mode=mode) for op, name, mode in keys]
    for _ in range(2):
        for case in cases:
            os.write(output.fileno(), case.mode_key[0].encode())
            assert output.keep(folder.file_of(case), 0, output.size)
    files = [output.keep(folder.file_of(case), 0, 0) for case in cases]
    assert len({file.lower() for file in files}) == len(cases) == len(list(tmp_path.iterdir()))
    assert files[3] == str(tmp_path / "a_b.default.float64.eager.txt")
