from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend.users_code import importable, load


@pytest.fixture(autouse=True)
def _modules_as_before(monkeypatch, tmp_path):
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def write(tmp_path):
    def writer(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return writer


def failure(target, role="forward"):
    with pytest.raises(CaseFailedError) as caught:
        load(target, role)
    return caught.value


def test_the_specs_folder_stands_before_the_working_directory(write, tmp_path):
    write("beside/loading_ops.py", "def f(): return 'beside the spec'")
    write("loading_ops.py", "def f(): return 'in the working directory'")
    write("loading_other.py", "def f(): return 'in the working directory'")
    with importable(str(tmp_path / "beside")):
        assert load("loading_ops:f", "forward")() == "beside the spec"
        assert load("loading_other:f", "forward")() == "in the working directory"


def test_namesakes_in_two_folders_are_each_specs_own(write, tmp_path):
    for folder in ("a", "b"):
        write(f"{folder}/loading_ops.py", f"from loading_part import name\ndef f(): return {folder!r} + name")
        write(f"{folder}/loading_part.py", f"name = {folder!r}")
    for folder in ("a", "b", "a"):
        with importable(str(tmp_path / folder)):
            assert load("loading_ops:f", "forward")() == folder * 2


def test_a_module_that_was_loaded_once_is_the_same_for_every_role(write, tmp_path):
    write("loading_ops.py", "STATE = []\ndef f(): return STATE")
    with importable(str(tmp_path)):
        first = load("loading_ops:f", "forward")()
    with importable(str(tmp_path)):
        assert load("loading_ops:f", "gradient")() is first


def test_a_missing_module_says_where_it_was_looked_for(tmp_path):
    (tmp_path / "specs").mkdir()
    with importable(str(tmp_path / "specs")):
        error = failure("loading_missing:f", "gradient")
    assert error.kind == "import"
    lines = error.message.splitlines()
    assert lines[0] == "gradient: no module named 'loading_missing'."
    assert lines[1:4] == ["Looked in:", "  specs", "  ."]
    assert lines[-2] == "  the installed packages"
    assert lines[-1] == "Put the module beside the spec, run from its folder, or install it."
    assert all(Path(line.strip()).is_dir() for line in lines[2:-2])
    assert len(set(lines)) == len(lines)
    assert error.traceback == ()


def test_a_module_above_the_spec_is_noticed(write, tmp_path):
    write("libs/a/loading_above.py", "f = abs")
    (tmp_path / "libs" / "a" / "specs").mkdir()
    with importable(str(tmp_path / "libs" / "a" / "specs")):
        message = failure("loading_above:f").message
    assert (
        "libs/a/ has loading_above: install the project (pip install -e .), or set PYTHONPATH=libs/a."
        in message
    )


def test_a_module_in_another_folder_is_noticed_wherever_it_is_imported(write, tmp_path):
    write("loading_pkg/loading_beside.py", "f = abs")
    write("loading_pkg/loading_importer.py", "import loading_beside\nf = abs")
    told = (
        "loading_pkg/ has loading_beside: install the project (pip install -e .), or set "
        "PYTHONPATH=loading_pkg."
    )
    with importable(str(tmp_path)):
        assert failure("loading_beside:f").message.endswith(f"\n{told}")
        assert failure("loading_pkg.loading_importer:f").message.endswith(f"'loading_beside'. {told}")


def test_a_part_that_an_installed_package_lacks_is_not_to_be_installed(write, tmp_path):
    write("loading_ops.py", "import tensorflow.contrib")
    with importable(str(tmp_path)):
        assert failure("loading_ops:f").message.endswith("No module named 'tensorflow.contrib'.")


def test_a_module_that_a_module_imports_is_another_matter(write, tmp_path):
    write("loading_ops.py", "x = 1\nimport loading_nowhere")
    with importable(str(tmp_path)):
        error = failure("loading_ops:f")
    assert (error.kind, error.message) == (
        "import",
        (
            "forward: importing 'loading_ops' failed: ModuleNotFoundError: "
            "No module named 'loading_nowhere'. Install what it imports."
        ),
    )
    assert error.traceback == ("loading_ops.py:2: in <module>", "    import loading_nowhere")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        (
            "from json import nothing_of_this_name",
            "ImportError: cannot import name 'nothing_of_this_name' from 'json'",
        ),
    ],
)
def test_a_module_that_raises(write, tmp_path, text, told):
    write("loading_ops.py", f"import json\n{text}")
    with importable(str(tmp_path)):
        error = failure("loading_ops:f")
    assert error.kind == "import"
    assert error.message.startswith(f"forward: importing 'loading_ops' failed: {told}")
    assert error.traceback == ("loading_ops.py:2: in <module>", f"    {text}")


def test_a_syntax_error_has_its_place(write, tmp_path):
    write("loading_ops.py", "x = 1\ndef f(:\n    pass")
    with importable(str(tmp_path)):
        error = failure("loading_ops:f")
    assert error.kind == "import"
    assert error.message.startswith("forward: importing 'loading_ops' failed: SyntaxError: ")
    assert error.traceback == ("loading_ops.py:2: def f(:",)


def test_a_missing_attribute_says_which_was_meant(write, tmp_path):
    write("loading_ops.py", "def huber(x): pass\nclass Loss:\n    def huber(self): pass")
    with importable(str(tmp_path)):
        error = failure("loading_ops:hubr")
        assert (error.kind, error.message) == (
            "attribute",
            "forward: 'loading_ops' (loading_ops.py) has no attribute 'hubr'. Did you mean 'huber'?",
        )
        assert failure("loading_ops:Loss.hubr").message == (
            "forward: 'loading_ops.Loss' (loading_ops.py) has no attribute 'hubr'. Did you mean 'huber'?"
        )
        assert (
            failure("loading_ops:zzz").message
            == "forward: 'loading_ops' (loading_ops.py) has no attribute 'zzz'."
        )


def test_a_function_that_moved_is_named_where_it_is(write, tmp_path):
    (tmp_path / "loading_pkg").mkdir()
    write("loading_pkg/__init__.py", "from loading_pkg import losses")
    write("loading_pkg/losses.py", "def huber(x): pass")
    write("loading_pkg/ops.py", "")
    with importable(str(tmp_path)):
        message = failure("loading_pkg.ops:huber").message
    assert message.endswith("It is in loading_pkg.losses now: write loading_pkg.losses:huber.")


def test_a_module_in_src_is_noticed(write, tmp_path):
    (tmp_path / "src").mkdir()
    write("src/loading_in_src.py", "def f(x): pass")
    with importable(str(tmp_path)):
        message = failure("loading_in_src:f").message
    assert (
        "src/ has loading_in_src: install the project (pip install -e .), or set PYTHONPATH=src." in message
    )


def test_what_can_not_be_called():
    error = failure("math:pi", "reference")
    assert (error.kind, error.message) == (
        "attribute",
        "reference: 'math:pi' must be callable, but is of type float.",
    )
