"""A folder of specs and their code lies elsewhere as it lay here, and has a name by its content."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed", reason='it needs the extra dask: pip install "gradcheck-cli[dask]"')

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.cluster import dask_task
from gradcheck_cli.features.cluster.dask_task import lay_out, pack
from gradcheck_cli.spec.load import load_cases


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Write a project and stand in it: specs with data, a package and a module that their code imports."""
    files = {
        "specs/a.yaml": "op: a\nforward: ops:f\ninputs: {x: {file: data/x.npy}, y: {file: %s/far.npy}}\n",
        "specs/ops.py": "import helper\nfrom package import part\n",
        "specs/notes.bin": "read by ops.py itself\n",
        "specs/.git/config": "",
        "specs/__pycache__/ops.pyc": "",
        "specs/venv/pyvenv.cfg": "",
        "helper.py": "",
        "unrelated.py": "",
        "package/__init__.py": "",
        "package/part/__init__.py": "",
        "package/table.csv": "1\n",
        "library/used.py": "",
        "library/unused.py": "",
    }
    for name, text in files.items():
        file = tmp_path / "project" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("%s", str(tmp_path)))
    (tmp_path / "project/specs/data").mkdir()
    np.save(tmp_path / "project/specs/data/x.npy", np.ones(2))
    np.save(tmp_path / "far.npy", np.zeros(3))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def packed():
    cases = load_cases(["specs"])
    return cases, pack(cases)


def names_in(root):
    return sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())


def test_the_folder_goes_along_and_what_its_code_imports_from_elsewhere(project, tmp_path):
    _, code = packed()
    root = lay_out(code.digest, code.archive, tmp_path / "store")
    assert (tmp_path / "store" / code.digest) == root
    there = [
        "helper.py",
        "package/__init__.py",
        "package/part/__init__.py",
        "package/table.csv",
        "specs/a.yaml",
        "specs/data/x.npy",
        "specs/notes.bin",
        "specs/ops.py",
    ]
    assert names_in(Path(f"{root}{project}")) == there
    assert Path(f"{root}{tmp_path}/far.npy").is_file()
    assert (Path(f"{root}{project}") / "specs/notes.bin").read_text() == "read by ops.py itself\n"


def test_the_digest_is_of_paths_and_contents_alone(project):
    _, first = packed()
    (project / "specs/ops.py").touch()
    (project / "unrelated.py").write_text("1\n")
    _, again = packed()
    assert again == first
    (project / "specs/notes.bin").write_text("changed\n")
    _, changed = packed()
    (project / "specs/notes.bin").rename(project / "specs/other.bin")
    _, renamed = packed()
    assert len({first.digest, changed.digest, renamed.digest}) == 3


def test_a_folder_that_is_too_large_is_a_fault_that_names_it(project, monkeypatch):
    monkeypatch.setattr(dask_task, "LIMIT", 1000)
    (project / "specs/large.bin").write_bytes(b"0" * 2000)
    with pytest.raises(CaseFailedError, match=r"specs: holds more than 1000 bytes.*large\.bin"):
        packed()
