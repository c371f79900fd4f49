import os
import stat
from pathlib import Path

import pytest

from gradcheck_cli.plain_files import write_text


def test_others_can_read_it(tmp_path):
    mask = os.umask(0o022)
    try:
        write_text(tmp_path / "report.json", "x")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "report.json").stat().st_mode) == 0o644


def test_permissions_stay(tmp_path):
    file = tmp_path / "report.json"
    file.write_text("old")
    file.chmod(0o600)
    write_text(file, "new")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_link_stays_a_link(tmp_path):
    link, target = tmp_path / "latest.json", tmp_path / "real.json"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "report.json"
    file.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_text(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
