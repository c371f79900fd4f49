import pickle
import subprocess
import sys

import pytest

from gradcheck_cli.errors import NoSpecsError, SpecError
from gradcheck_cli.spec.load import load_cases

SPEC = "op: {}\nforward: m:f\ninputs: {{x: {{shape: [2]}}}}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("specs/b.yaml", "specs/a.yml", "specs/sub/c.yaml", "specs/.git/d.yaml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SPEC.format(path.stem))
    (tmp_path / "specs/readme.md").write_text("no spec")
    return tmp_path


def test_a_folder_is_read_recursively_sorted_and_without_hidden_folders(folder):
    cases = load_cases(["specs"])
    assert [case.origin.path for case in cases] == ["specs/a.yml", "specs/b.yaml", "specs/sub/c.yaml"]
    assert [case.origin.folder for case in cases] == [str(folder / "specs")] * 2 + [str(folder / "specs/sub")]


def test_paths_are_shown_relative_to_the_working_directory(folder, monkeypatch):
    (case,) = load_cases([folder / "specs" / "a.yml"])
    assert case.spec == "specs/a.yml:1"
    monkeypatch.chdir(folder / "specs" / "sub")
    (case,) = load_cases(["../a.yml"])
    assert case.origin.path == "../a.yml"


def test_missing_paths_are_faults_with_near_names(folder):
    (folder / "specs/bad.yaml").write_text("op: [")
    with pytest.raises(SpecError) as caught:
        load_cases(["spec", "specs/aa.yml", "elsewhere/x", "specs/bad.yaml", "a\0b"])
    faults = str(caught.value).split("\n")
    assert "spec: no such file or folder. Did you mean 'specs'?" in faults
    assert "specs/aa.yml: no such file or folder. Did you mean 'a.yml'?" in faults
    assert "elsewhere/x: no such file or folder" in faults
    assert any(fault.startswith("specs/bad.yaml:") and "must be YAML" in fault for fault in faults)
    assert len(faults) == 5


def test_a_folder_without_specs(folder):
    (folder / "empty").mkdir()
    with pytest.raises(
        NoSpecsError, match=r"^empty: no specs: looked for \*.yaml and \*.yml in it and below$"
    ) as caught:
        load_cases(["specs", "empty"])
    assert caught.value.exit_code == 5


def test_a_duplicate_op_names_the_first_place(folder):
    (folder / "specs/z.yaml").write_text(SPEC.format("a") + "\n---\n" + SPEC.format("a"))
    with pytest.raises(
        SpecError, match=r"^specs/z.yaml:\d+: op: must be unique in a file, but got 'a', "
    ) as caught:
        load_cases(["specs"])
    assert str(caught.value) == (
        "specs/z.yaml:6: op: must be unique in a file, but got 'a', which specs/z.yaml:1 has. Rename one"
    )


def test_two_files_may_have_an_op_of_one_name(folder):
    """The file is part of such an op's key, and of no other's: nor of its name, which values depend on."""
    (folder / "specs/z.yaml").write_text(SPEC.format("a"))
    cases = {case.file: case for case in load_cases(["specs"])}
    assert [cases[file].key[0] for file in ("specs/a.yml", "specs/z.yaml")] == [
        "specs/a.yml::a",
        "specs/z.yaml::a",
    ]
    assert {case.op for case in cases.values() if case.full_op} == {"a"}
    assert all(case.key[0] == case.op for case in load_cases(["specs/z.yaml"]))


def test_the_stem_stands_in_for_the_name(folder):
    (folder / "huber.yaml").write_text("forward: m:f\ninputs: {x: {shape: [2]}}")
    (folder / "one.yaml").write_text("ops: [{forward: 'm:f', inputs: {x: {shape: [2]}}}]")
    assert [case.op for case in load_cases(["huber.yaml", "one.yaml"])] == ["huber", "one"]


def test_a_stem_that_is_no_name(folder):
    (folder / "my op.yaml").write_text("forward: m:f\ninputs: {x: {shape: [2]}}")
    with pytest.raises(
        SpecError, match=r"my op\.yaml:1: op: is missing; the file's name 'my op' can't be one"
    ):
        load_cases(["my op.yaml"])


def test_seed_overrides(folder):
    (folder / "s.yaml").write_text(SPEC.format("s") + "seed: 3\n")
    assert load_cases(["s.yaml"])[0].seed == 3
    assert load_cases(["s.yaml"], seed=5)[0].seed == 5
    assert load_cases(["s.yaml"], seed=0)[0].seed == 0


@pytest.mark.usefixtures("folder")
def test_cases_can_be_pickled():
    cases = load_cases(["specs"])
    assert pickle.loads(pickle.dumps(cases)) == cases  # noqa: S301 (our own bytes)


@pytest.mark.usefixtures("folder")
def test_an_unreadable_file(monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gradcheck_cli.spec.load.read_plain", refuse)
    with pytest.raises(SpecError, match=r"^specs/a.yml: can't be read: permission denied$"):
        load_cases(["specs/a.yml"])


def test_loading_brings_neither_numpy_nor_tensorflow(folder):
    code = (
        "import sys; from gradcheck_cli.spec.load import load_cases; load_cases(['specs']);"
        "print([name for name in ('numpy', 'tensorflow') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("target", ["loop.yaml", "gone.yaml"])
def test_a_link_that_leads_nowhere_is_called_so_and_isnt_suggested(folder, target):
    (folder / "loop.yaml").symlink_to(target)
    with pytest.raises(SpecError) as caught:
        load_cases(["loop.yaml", "lop.yaml"])
    assert str(caught.value).splitlines() == [
        "loop.yaml: is a link that leads nowhere",
        "lop.yaml: no such file or folder",
    ]
