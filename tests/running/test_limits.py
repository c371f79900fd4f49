import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from gradcheck_cli.running import limits
from gradcheck_cli.running.local_workers import group_cases


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 * 2**30),
        ("4G", 4 * 2**30),
        ("512 mb", 512 * 2**20),
        ("1.5k", 1536),
        ("100", 100),
        ("2 TiB", 2**41),
        ("", None),
        ("4 gigs", None),
        ("-1G", None),
        ("G", None),
    ],
)
def test_sizes(text, size):
    assert limits.size_of(text) == size


def test_a_containers_quota_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "_CGROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert limits.usable_cores() == 8
    for quota, cores in (("max 100000", 8), ("250000 100000", 2), ("10000 100000", 1), ("1600000 100000", 8)):
        (tmp_path / "cpu.max").write_text(quota)
        assert limits.usable_cores() == cores
    whole = limits.default_memory()
    assert whole > 0
    (tmp_path / "memory.max").write_text("max")
    assert limits.default_memory() == whole
    (tmp_path / "memory.max").write_text(str(2**20))
    assert limits.default_memory() == 2**19


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' allocators have no such setting")
def test_freed_memory_is_used_again():
    """Else each page is cleared by the system once more: 10 times 64 MiB have 163,840 pages."""
    program = (
        "import resource; from gradcheck_cli.running.limits import keep_freed_memory\n"
        "keep_freed_memory()\n"
        "sizes = [len(b'x' * 2**26) for _ in range(10)]\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)"
    )
    faults = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert int(faults.stdout) < 60_000


def test_a_process_checks_a_document_but_not_too_many_cases_of_it():
    """TensorFlow keeps what each case has made until its process ends."""
    specs = ["a.yaml:1"] * 250 + ["a.yaml:9"] * 2 + ["b.yaml:1"]
    cases = [SimpleNamespace(spec=spec) for spec in specs]
    groups = list(group_cases(cases, isolate=False))
    assert [len(group) for group in groups] == [100, 100, 50, 2, 1]
    assert [one.index for group in groups for one in group] == list(range(len(cases)))
    assert [len(group) for group in group_cases(cases, isolate=True)] == [1] * len(cases)
