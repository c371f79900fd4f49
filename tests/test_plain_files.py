"""Plain files of a bounded size, and nothing else."""

import os
from pathlib import Path

import pytest

from gradcheck_cli.plain_files import read_plain


def test_a_plain_file_is_read_up_to_its_limit(tmp_path):
    file = tmp_path / "a"
    file.write_bytes(b"12345")
    assert read_plain(file, 5) == b"12345"
    with pytest.raises(OSError, match="must hold at most 4 bytes, but is larger"):
        read_plain(file, 4)


def test_a_file_of_proc_has_no_size_and_a_limit_all_the_same():
    assert read_plain(Path("/proc/self/status"), 10**6)
    with pytest.raises(OSError, match="is larger"):
        read_plain(Path("/proc/self/status"), 10)


def test_what_is_no_plain_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for file, what in (
        (tmp_path / "pipe", "a named pipe"),
        (Path("/dev/zero"), "a device"),
        (tmp_path, "a folder"),
    ):
        with pytest.raises(OSError, match=f"must be a plain file, but is {what}"):
            read_plain(file, 100)


def test_a_stream_that_the_shell_opened_is_read_to_its_end():
    reading, writing = os.pipe()
    os.write(writing, b"spec")
    os.close(writing)
    assert read_plain(Path(f"/dev/fd/{reading}"), 100) == b"spec"
    os.close(reading)
