"""Which cases a change may touch once they have run: all ways in which code, data and specs hang together."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from gradcheck_cli.cli.main import run_command
from gradcheck_cli.errors import UsageError
from gradcheck_cli.results import FilesRead
from gradcheck_cli.running.changed import changed_cases
from gradcheck_cli.running.files_read import Contents
from gradcheck_cli.running.selection import read_history
from gradcheck_cli.spec.case import in_each_mode
from gradcheck_cli.spec.load import load_cases
from tests.support.processes import git

F = "def f(x):\n    return x\n"
ITERATED = f"""
import importlib, pkgutil, plugins
for module in pkgutil.iter_modules(plugins.__path__):
    importlib.import_module("plugins." + module.name)
{F}"""
# op: its module, the file that it depends on, and what that file is
WAYS = {
    "near": ("from pkg import ops\nf = ops.cube\n", "pkg/ops.py"),
    "relative": ("from pkg.ops import cube as f\n", "pkg/helpers.py"),
    "starred": ("from pkg.parts import *\n" + F, "pkg/parts/one.py"),
    "late": ("def f(x):\n    import pkg.late\n    return pkg.late.f(x)\n", "pkg/late.py"),
    "namespace": ("import spread.thing\n" + F, "spread/thing.py"),
    "on_the_path": ("import sys\nsys.path.insert(0, 'lib')\nimport in_lib\n" + F, "lib/in_lib.py"),
    "computed": (
        "from importlib import import_module as get\nf = get('pkg.' + 'comp' + 'uted').f\n",
        "pkg/computed.py",
    ),
    "by_location": (
        """
import importlib.util
spec = importlib.util.spec_from_file_location("odd", "odd/by location.py")
odd = importlib.util.module_from_spec(spec)
spec.loader.exec_module(odd)
f = odd.f
""",
        "odd/by location.py",
    ),
    "iterated": (ITERATED, "plugins/plug.py"),
    "a_new_one": (ITERATED, "plugins/new.py"),
    "executed": ("exec(open('odd/executed.txt').read())\n", "odd/executed.txt"),
    "loaded": ("import numpy as np\nnp.load('data/loaded.npy')\n" + F, "data/loaded.npy"),
    "opened": (
        "def f(x):\n    with open('data/opened.txt') as s:\n        return x * float(s.read())\n",
        "data/opened.txt",
    ),
    "path": ("from pathlib import Path\nPath('data', 'read.txt').read_text()\n" + F, "data/read.txt"),
    "globbed": (
        "import glob\nfor n in glob.glob('data/glob/*.txt'):\n    open(n).read()\n" + F,
        "data/glob/new.txt",
    ),
    "missing": ("try:\n    import fast\nexcept ImportError:\n    pass\n" + F, "fast.py"),
    "missing_data": ("try:\n    open('data/fast.txt')\nexcept OSError:\n    pass\n" + F, "data/fast.txt"),
    "shadowed": ("import in_root\n" + F, "specs/in_root.py"),
    "by_tensorflow": ("import tensorflow as tf\ntf.io.read_file('data/unseen.txt')\n" + F, "data/unseen.txt"),
    "by_a_program": (
        "import subprocess\nsubprocess.run(['cat', 'data/unseen.txt'], check=True)\n" + F,
        "data/unseen.txt",
    ),
    "given": (F, "data/given.npy"),
}
ALWAYS = {"by_tensorflow", "by_a_program"}  # what is read has no event
FILES = {
    "pkg/__init__.py": "",
    "pkg/ops.py": "from . import helpers\n\ndef cube(x):\n    return x ** 3\n",
    "pkg/helpers.py": "import json\n",
    "pkg/parts/__init__.py": "__all__ = ['one']\n",
    "pkg/parts/one.py": "",
    "pkg/late.py": F,
    "pkg/computed.py": F,
    "pkg/unused.py": "",
    "spread/thing.py": "",
    "lib/in_lib.py": "",
    "in_root.py": "",
    "odd/by location.py": F,
    "odd/executed.txt": F,
    "plugins/__init__.py": "",
    "plugins/plug.py": "",
    "data/opened.txt": "2",
    "data/read.txt": "",
    "data/glob/a.txt": "",
    "data/unseen.txt": "",
    "specs/raw.yaml": "op: raw\nop_type: Tanh\ninputs: {x: {shape: [2]}}\n",
    "README": "read me\n",
    ".gitignore": "__pycache__/\nignored.txt\n",
}
ALL = {*WAYS, "raw"}
CACHE = Path(".gradcheck_cache")


def commit(folder, message):
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """A project whose specs have all been checked once."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
            patch.delenv(name, raising=False)
        specs = {
            f"specs/{op}.yaml": f"op: {op}\nforward: {op}_ops:f\ninputs: {{x: {{shape: [2]}}}}\n"
            for op in WAYS
        }
        specs["specs/given.yaml"] = (
            "op: given\nforward: given_ops:f\ninputs: {x: {file: ../data/given.npy}}\n"
        )
        modules = {f"specs/{op}_ops.py": text for op, (text, _) in WAYS.items()}
        for name, text in {**FILES, **specs, **modules}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        np.save(folder / "data/loaded.npy", np.zeros(2))
        np.save(folder / "data/given.npy", np.ones(2))
        git(folder, "init", "-q", "-b", "main")
        commit(folder, "first")
        patch.chdir(folder)
        assert run_command(["run", "specs", "-j", "2", "-q"]) == 0
    return folder


@pytest.fixture
def project(checked, tmp_path, monkeypatch):
    """A copy of it, in which nothing has changed."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    shutil.copytree(checked, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def touched(revision="HEAD", paths=("specs",), modes=()):
    """Return the ops that are checked, without those that always are."""
    return selected(revision, paths, modes) - ALWAYS


def selected(revision="HEAD", paths=("specs",), modes=()):
    cache = CACHE.resolve()
    cases = in_each_mode(load_cases(paths), modes)
    return {case.op for case in changed_cases(cases, revision, read_history(cache), cache)}


def change(file):
    file.parent.mkdir(exist_ok=True)
    with file.open("ab") as stream:
        stream.write(b"# changed\n")


@pytest.mark.usefixtures("project")
def test_nothing_changed_and_what_can_read_without_a_trace_is_checked():
    assert selected() == ALWAYS


# Ops that read the same file, or list the folder that it is in.
TOGETHER = ({"near", "relative"}, {"iterated", "a_new_one"})


@pytest.mark.parametrize("op", sorted(WAYS))
def test_a_changed_file_touches_what_read_it_in_whatever_way_and_nothing_else(project, op):
    change(project / WAYS[op][1])
    together = next((ops for ops in TOGETHER if op in ops), {op})
    assert selected() in (together | ALWAYS, {op} | ALWAYS)


@pytest.mark.parametrize("name", ["pkg/unused.py", "README", "data/new.txt"])
def test_a_file_that_nothing_read_touches_nothing(project, name):
    change(project / name)
    assert touched() == set()


def test_a_specs_own_files_touch_it(project):
    change(project / "specs/raw.yaml")
    change(project / "specs/near_ops.py")
    assert touched() == {"raw", "near"}
    (project / "specs/defaults.yaml").write_text("defaults: {samples: 2}\n")
    assert touched() == ALL - ALWAYS


def test_staged_and_untracked_files_count_and_ignored_ones_do_not(project):
    change(project / "pkg/late.py")
    git(project, "add", "-A")
    (project / "specs/new.yaml").write_text("op: new\nop_type: Tanh\ninputs: {x: {shape: [2]}}\n")
    (project / "ignored.txt").write_text("")
    assert touched() == {"late", "new"}


def test_a_file_that_was_deleted_or_renamed_touches_what_read_it(project):
    git(project, "mv", "pkg/helpers.py", "pkg/tools.py")
    (project / "data/read.txt").unlink()
    assert touched() == {"near", "relative", "path"}


def test_a_record_is_void_once_a_file_isnt_as_it_was(project):
    # What the module reads now is unknown until it runs, though nothing has changed since the commit.
    (project / "specs/late_ops.py").write_text("from pkg.parts.one import *\n" + F)
    (project / "specs/raw.yaml").write_text("op: raw\nop_type: Sin\ninputs: {x: {shape: [2]}}\n")
    commit(project, "and nothing was run")
    assert touched() == {"late", "raw"}


@pytest.mark.parametrize("content", [None, "{}", "no JSON"])
def test_without_a_record_everything_is_checked(project, content):
    (CACHE / "history.json").unlink()
    if content is not None:
        (CACHE / "history.json").write_text(content)
    assert selected() == ALL


def test_a_run_that_records_nothing_leaves_older_records(project):
    assert run_command(["run", "specs/raw.yaml", "-j", "0", "-q"]) == 0
    assert touched() == set()
    shutil.rmtree(CACHE)
    assert run_command(["run", "specs/raw.yaml", "-j", "0", "-q"]) == 0
    assert touched(paths=["specs/raw.yaml"]) == {"raw"}


def test_a_revision_is_compared_from_where_histories_parted(project):
    git(project, "checkout", "-q", "-b", "topic")
    change(project / "specs/raw.yaml")
    commit(project, "topic")
    git(project, "checkout", "-q", "main")
    change(project / "pkg/late.py")
    commit(project, "main went on")
    git(project, "checkout", "-q", "topic")
    assert touched("main") == {"raw"}
    assert touched("HEAD~1") == {"raw"}


def test_a_name_with_blanks_and_letters(project):
    name = "Größe 1.yaml"
    (project / "specs" / name).write_text("op: odd\nop_type: Tanh\ninputs: {x: {shape: [2]}}\n")
    commit(project, "odd name")
    assert run_command(["run", f"specs/{name}", "-q"]) == 0
    assert touched() == set()
    (project / "specs" / name).write_text("op: odd\nop_type: Sin\ninputs: {x: {shape: [2]}}\n")
    assert touched() == {"odd"}


def test_an_op_of_the_same_name_in_another_file_has_not_been_checked(project):
    """What is known of one file's op says nothing of another's, be both read in a run or one alone."""
    (project / "others").mkdir()
    shutil.copy(project / "specs/given.yaml", project / "others/given.yaml")
    commit(project, "another")
    assert "given" in selected(paths=("others",))
    assert "given" in selected(paths=("specs", "others"))
    assert "given" not in selected()


def test_before_the_first_commit_everything_is_new(project):
    for part in ("HEAD", "index", "refs/heads/main"):
        (project / ".git" / part).unlink()
    git(project, "init", "-q", "-b", "main")
    assert selected() == ALL
    git(project, "add", "specs/near.yaml", "specs/raw.yaml")
    assert selected() == ALL
    with pytest.raises(UsageError, match="git knows no revision 'origin/main'"):
        touched("origin/main")


@pytest.mark.usefixtures("project")
def test_bad_revisions_are_bad_usage():
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


def test_a_file_that_changed_during_the_run_makes_no_record(tmp_path):
    file = tmp_path / "ops.py"
    file.write_text(F)
    read = FilesRead(frozenset({str(file)}))
    assert Contents().digest(read, before=file.stat().st_mtime + 1)
    assert not Contents().digest(read, before=file.stat().st_mtime - 1)


@pytest.mark.parametrize(
    ("line", "leaves_a_trace"),
    [
        ("tf.saved_model.load(name)", False),
        ("keras.models.load_model(name)", False),
        ("with h5py.File(name) as f: pass", False),
        ("tf.data.TFRecordDataset(name)", False),
        ("tf.load_op_library(name)", False),
        ("subprocess.run(['make'])", False),
        ("if os.path.exists(name): pass", False),
        ("if Path(name).is_file(): pass", False),
        ("np.load(name)", True),
        ("tf.reduce_sum(x)", True),
    ],
)
def test_code_that_reads_without_a_trace_makes_no_record(tmp_path, line, leaves_a_trace):
    file = tmp_path / "ops.py"
    file.write_text(line)
    assert bool(Contents().digest(FilesRead(frozenset({str(file)})))) is leaves_a_trace
