import errno
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gradcheck_cli.gate import BaselineFinding, Change, Shard
from gradcheck_cli.results import Report, Status
from gradcheck_cli.running.selection import (
    Past,
    failed_before,
    past_key,
    read_history,
    shard_of,
    write_history,
)
from gradcheck_cli.spec.case import Origin
from gradcheck_cli.spec.load import load_mapping

CASES = [
    load_mapping({"op": f"op{n}", "forward": "m:f", "inputs": {"x": {"shape": [1]}}})[0] for n in range(9)
]


def past(*seconds):
    cases = CASES[: len(seconds)]
    return {
        past_key(case): Past(*case.key, duration_s=time) for case, time in zip(cases, seconds, strict=True)
    }


def by_op(history):
    return {one.op: one for one in history.values()}


@given(st.lists(st.floats(0, 100) | st.none(), max_size=9), st.integers(1, 12), st.integers(0, 9))
def test_the_parts_are_the_whole_and_balanced(seconds, count, cases):
    history = past(*seconds)
    parts = [shard_of(CASES[:cases], index, count, history)[0] for index in range(1, count + 1)]
    assert sorted(case.op for part in parts for case in part) == sorted(case.op for case in CASES[:cases])
    known = [time for time in seconds if time is not None]
    usual = sorted(known)[len(known) // 2] if known else 1.0
    if len(known) % 2 == 1 or not known:  # else the median is no element
        times = [0.0] * count
        for place, part in enumerate(parts):
            for case in part:
                ran = history.get(past_key(case))
                time = None if ran is None else ran.duration_s
                times[place] += usual if time is None else time
        # Longest first: no part is longer than the shortest by more than one case.
        longest = max([usual, *known])
        assert max(times) - min(times) <= longest + 1e-9


def test_a_run_is_remembered(tmp_path, a_result):
    folder = tmp_path / "cache"
    results = (
        a_result("good", duration=2.0),
        a_result("bad", Status.MISMATCHED),
        a_result("known", Status.EXPECTED_MISMATCH),
        a_result("open", Status.INCONCLUSIVE),
        a_result("drifts"),
    )
    finding = BaselineFinding("drifts", "default", "float64", "graph", "dy/dx", Change.DRIFTED)
    write_history(folder, Report("0", "2", "3", 0, results, baseline=(finding,)))
    known = by_op(read_history(folder))
    assert {op for op, one in known.items() if one.failed} == {"bad", "open", "drifts"}
    assert known["good"].duration_s == 2.0
    assert not known["good"].failed
    assert (folder / ".gitignore").read_text() == "*\n"
    write_history(folder, Report("0", "2", "3", 0, (a_result("bad"),)))
    after = by_op(read_history(folder))
    assert not after["bad"].failed
    assert after["open"].failed  # it didn't run again


def test_a_shard_does_not_change_how_the_next_one_is_cut(tmp_path, a_result):
    write_history(tmp_path, Report("0", "2", "3", 0, (a_result("a", duration=5.0),)))
    results = (a_result("a", Status.MISMATCHED, duration=9.0), a_result("b"))
    write_history(tmp_path, Report("0", "2", "3", 0, results, shard=Shard(1, 2, ())))
    known = by_op(read_history(tmp_path))
    assert (known["a"].failed, known["a"].duration_s) == (True, 5.0)
    assert (known["b"].failed, known["b"].duration_s) == (False, None)


def test_the_same_name_in_another_file_has_a_past_of_its_own(tmp_path, a_case, a_result):
    """Two runs, each of one file: in neither of them does the other file's op tell the names apart."""
    one, other = (replace(a_case("norm"), origin=Origin(f"{folder}/norm.yaml")) for folder in "ab")
    failed = replace(a_result("norm", Status.MISMATCHED, duration=3.0), spec="a/norm.yaml:1")
    write_history(tmp_path, Report("0", "2", "3", 0, (failed,)))
    write_history(tmp_path, Report("0", "2", "3", 0, (replace(a_result("norm"), spec="b/norm.yaml:1"),)))
    history = read_history(tmp_path)
    assert failed_before((one, other), history) == (one,)
    assert failed_before((replace(one, full_op="a/norm.yaml::norm"), other), history)
    assert history[past_key(one)].duration_s == 3.0


def test_a_full_disk_leaves_the_old_history_and_nothing_else(tmp_path, monkeypatch):
    report = Report("0", "2", "3", 0, ())
    write_history(tmp_path / "cache", report)
    before = sorted((tmp_path / "cache").iterdir())

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    write_history(tmp_path / "cache", report)
    assert sorted((tmp_path / "cache").iterdir()) == before
