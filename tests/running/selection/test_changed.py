"""Which cases a change may touch: every way in which code, data and specs hang together."""

from __future__ import annotations

import subprocess

import pytest

from gradcheck_cli.errors import UsageError
from gradcheck_cli.running import changed
from gradcheck_cli.running.changed import changed_cases
from gradcheck_cli.spec.load import load_cases

FILES = {
    "specs/near.yaml": "op: near\nforward: beside:f\ninputs: {x: {shape: [2]}}\n",
    "specs/beside.py": "from pkg import ops\n\ndef f(x):\n    return ops.cube(x)\n",
    "specs/deep.yaml": "op: deep\nforward: pkg.sub.leaf:f\nreference: pkg.sub.truth:f\n"
    "inputs: {x: {shape: [2]}}\n",
    "specs/alone.yaml": "op: alone\nforward: alone_ops:f\ninputs: {x: {file: 'x.npy'}}\n",
    "specs/raw.yaml": "op: raw\nop_type: Tanh\ninputs: {x: {shape: [2]}}\n",
    "specs/starred.yaml": "op: starred\nforward: starred_ops:f\ninputs: {x: {shape: [2]}}\n",
    "specs/late.yaml": "op: late\nforward: late_ops:f\ninputs: {x: {shape: [2]}}\n",
    "alone_ops.py": "import json\n\ndef f(x):\n    return x\n",
    "starred_ops.py": "from pkg.parts import *\n",
    "late_ops.py": "def f(x):\n    import importlib\n    return importlib.import_module('pkg.late').f(x)\n",
    "pkg/__init__.py": "",
    "pkg/ops.py": "from . import helpers\nfrom .sub.truth import f as truth\n\ndef cube(x):\n    return x\n",
    "pkg/helpers.py": "import json\n",
    "pkg/late.py": "def f(x):\n    return x\n",
    "pkg/sub/__init__.py": "",
    "pkg/sub/leaf.py": "from ..helpers import *\nfrom ..other.thing import that\n\ndef f(x):\n    return x\n",
    "pkg/sub/truth.py": "def f(x):\n    return x\n",
    "pkg/other/thing.py": "that = 1\n",
    "pkg/parts/__init__.py": "__all__ = ['one']\n",
    "pkg/parts/one.py": "",
    "pkg/unused.py": "",
    "README": "read me\n",
}
ALL = {"near", "deep", "alone", "raw", "starred", "late"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    np = pytest.importorskip("numpy")
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    np.save(tmp_path / "specs" / "x.npy", np.zeros(2))
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, "first")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def git(folder, *arguments):
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *who, *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder, message):
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)


def touched(revision="HEAD", paths=("specs",)):
    changed.clear_cache()
    return {case.op for case in changed_cases(load_cases(paths), revision)}


def test_nothing_changed(project):
    assert touched() == set()


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("specs/near.yaml", {"near"}),
        ("specs/beside.py", {"near"}),
        ("pkg/ops.py", {"near"}),
        ("pkg/helpers.py", {"near", "deep"}),
        ("pkg/__init__.py", {"near", "deep", "starred", "late"}),
        ("pkg/sub/__init__.py", {"near", "deep"}),
        ("pkg/sub/truth.py", {"near", "deep"}),
        ("pkg/other/thing.py", {"deep"}),  # a package without an __init__.py
        ("pkg/parts/one.py", {"starred"}),
        ("pkg/late.py", {"late"}),
        ("alone_ops.py", {"alone"}),
        ("pkg/unused.py", set()),
        ("README", set()),
    ],
)
def test_a_changed_file_touches_what_is_made_of_it(project, name, ops):
    with (project / name).open("a") as stream:
        stream.write("# changed\n")
    assert touched() == ops


def test_a_changed_data_file(project):
    np = pytest.importorskip("numpy")
    np.save(project / "specs" / "x.npy", np.ones(2))
    assert touched() == {"alone"}


def test_staged_and_untracked_files_count_and_ignored_ones_do_not(project):
    (project / "pkg" / "late.py").write_text("def f(x):\n    return -x\n")
    git(project, "add", "-A")
    (project / "specs" / "new.yaml").write_text("op: new\nop_type: Tanh\ninputs: {x: {shape: [2]}}\n")
    (project / ".gitignore").write_text("generated.py\n")
    (project / "generated.py").write_text("")
    assert touched() == {"late", "new"}


def test_a_deleted_module_touches_what_imported_it(project):
    (project / "pkg" / "helpers.py").unlink()
    assert touched() == {"near", "deep"}


def test_a_renamed_module_touches_what_imports_either_name(project):
    git(project, "mv", "pkg/helpers.py", "pkg/tools.py")
    assert touched() == {"near", "deep"}


def test_a_module_that_is_not_there_leaves_it_open(project):
    (project / "specs" / "near.yaml").write_text("op: near\nforward: gone:f\ninputs: {x: {shape: [2]}}\n")
    commit(project, "names what isn't there")
    assert touched() == {"near"}


@pytest.mark.parametrize(
    "text",
    ["import importlib\n\ndef f(x, name):\n    return importlib.import_module(name)\n", "def f(:\n"],
    ids=["computed name", "syntax error"],
)
def test_what_can_not_be_told_is_checked(project, text):
    (project / "alone_ops.py").write_text(text)
    commit(project, "hard to read")
    assert touched() == {"alone"}


def test_a_revision_is_compared_from_where_histories_parted(project):
    git(project, "checkout", "-q", "-b", "topic")
    (project / "alone_ops.py").write_text("def f(x):\n    return 2 * x\n")
    commit(project, "topic")
    git(project, "checkout", "-q", "main")
    (project / "pkg" / "late.py").write_text("def f(x):\n    return 3 * x\n")
    commit(project, "main went on")
    git(project, "checkout", "-q", "topic")
    assert touched("main") == {"alone"}
    assert touched("HEAD~1") == {"alone"}


def test_a_name_with_blanks_and_letters(project):
    name = "Größe 1.yaml"
    (project / "specs" / name).write_text("op: odd\nop_type: Tanh\ninputs: {x: {shape: [2]}}\n")
    commit(project, "odd name")
    (project / "specs" / name).write_text("op: odd\nop_type: Sin\ninputs: {x: {shape: [2]}}\n")
    assert touched() == {"odd"}


def test_from_a_folder_within_the_repository(project, monkeypatch):
    monkeypatch.chdir(project / "specs")
    (project / "specs" / "raw.yaml").write_text("op: raw\nop_type: Sin\ninputs: {x: {shape: [2]}}\n")
    assert touched(paths=["raw.yaml"]) == {"raw"}


def test_a_spec_outside_the_repository_is_always_checked(project, tmp_path_factory):
    file = tmp_path_factory.mktemp("outside") / "raw.yaml"
    file.write_text("op: raw\nop_type: Sin\ninputs: {x: {shape: [2]}}\n")
    assert touched(paths=[file]) == {"raw"}


def test_before_the_first_commit_everything_is_new(project):
    for part in ("HEAD", "index", "refs/heads/main"):
        (project / ".git" / part).unlink()
    git(project, "init", "-q", "-b", "main")
    assert touched() == ALL
    git(project, "add", "specs/near.yaml", "specs/raw.yaml")
    assert touched() == ALL
    with pytest.raises(UsageError, match="git knows no revision 'origin/main'"):
        touched("origin/main")


def test_bad_revisions_are_bad_usage(project):
    with pytest.raises(UsageError, match=r"git knows no revision 'origin/main'; is it fetched\?$"):
        touched("origin/main")
    with pytest.raises(UsageError, match=r"write --changed=HEAD specs\.$"):
        touched("specs")
    with pytest.raises(UsageError, match="'--help' is no revision"):
        touched("--help")


def test_no_repository_is_bad_usage(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("op: a\nop_type: Tanh\ninputs: {x: {shape: [2]}}\n")
    with pytest.raises(UsageError, match="--changed: fatal: not a git repository"):
        touched(paths=["a.yaml"])
