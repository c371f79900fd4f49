"""The pytest plugin as its user meets it: pytest in a folder with specs, by its own command line."""

import sys
import xml.etree.ElementTree as ET

import pytest

pytestmark = pytest.mark.once

pytest_plugins = ["pytester"]

CODE = """
import tensorflow as tf

def square(x):
    return x * x

@tf.custom_gradient
def cube(x):
    return x ** 3, lambda upstream: upstream * x ** 2

def two(x, w):
    return x * w, tf.exp(w)

def crash(x):
    import os
    os.abort()
"""
SPECS = """
ops:
  - {op: square, forward: 'functions:square', inputs: {x: {shape: [2]}}, tags: [quick]}
  - {op: cube, forward: 'functions:cube', inputs: {x: {shape: [2]}}}
  - {op: two, forward: 'functions:two', outputs: [a, b], modes: [graph, eager],
     inputs: {x: {shape: [2]}, w: {shape: [2]}}}
"""
PLAIN = "def test_plain():\n    pass\n"


@pytest.fixture
def project(pytester, monkeypatch):
    """A folder with a module, specs beside it, and a test of the usual kind."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(functions=CODE, test_plain=PLAIN)
    pytester.path.joinpath("ops.gradcheck.yaml").write_text(SPECS)
    pytester.makepyprojecttoml("[tool.pytest.ini_options]\n")
    return pytester


def names(result, word):
    return [
        line.split("::", 1)[1].split(" ")[0]
        for line in result.outlines
        if f" {word}" in line and "::" in line
    ]


def test_each_pair_is_a_test_and_a_wrong_one_fails_with_its_table(project):
    result = project.runpytest_subprocess("--gradcheck", "-v", "--junit-xml", "report.xml")
    result.assert_outcomes(passed=14, failed=1)
    assert "cube::default::dy/dx" in names(result, "FAILED")
    assert names(result, "PASSED")[:2] == ["square::default::case", "square::default::dy/dx"]
    assert "two::default-eager::db/dw" in names(result, "PASSED")
    assert "two::default-graph::db/dx" in names(result, "PASSED")
    text = result.stdout.str()
    assert "the gradient is 1/3 times the derivative" in text
    assert "reproduce: gradcheck run ops.gradcheck.yaml --op cube --case default --seed 0" in text
    assert "Traceback" not in text
    every = ET.parse(project.path / "report.xml").iter("testcase")  # noqa: S314 (our own file)
    (wrong,) = [case for case in every if case.find("failure") is not None]
    assert wrong.get("name") == "dy/dx"
    assert "MISMATCH" in (wrong.find("failure").text or "")
    found = {one.get("name"): one.get("value") for one in wrong.iter("property")}
    assert found == {"spec": "ops.gradcheck.yaml:4", "mode": "graph", "dtype": "float64"}


def test_without_the_option_nothing_is_collected_and_nothing_loaded(project):
    project.makepyfile(
        test_plain="import sys\n\ndef test_plain():\n    assert 'gradcheck_cli.spec' not in sys.modules\n"
        "    assert 'tensorflow' not in sys.modules\n"
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=1)


def test_by_name_and_by_node(project):
    result = project.runpytest_subprocess("--gradcheck", "-k", "quick or db")
    result.assert_outcomes(passed=6, deselected=9)
    one = project.runpytest_subprocess("--gradcheck", "ops.gradcheck.yaml::cube::default::dy/dx")
    one.assert_outcomes(failed=1)


def test_in_xdists_processes(project):
    result = project.runpytest_subprocess("--gradcheck", "-n", "2", "--dist", "loadgroup")
    result.assert_outcomes(passed=14, failed=1)


def test_a_crash_costs_its_case_and_nothing_else(project):
    project.path.joinpath("crash.gradcheck.yaml").write_text(
        "op: crash\nforward: functions:crash\ninputs: {x: {shape: [2]}}\n"
    )
    result = project.runpytest_subprocess("--gradcheck", "-v", "-k", "crash or square or plain")
    assert names(result, "FAILED") == ["crash::default::case"]
    assert "SIGABRT" in result.stdout.str()


PRODUCT = "forward: 'functions:product', inputs: {x: {shape: [2]}, w: {shape: [2]}}"
NUMPY = (
    "forward: 'functions:numpy_square', gradient: {numpy: 'functions:numpy_gradient'}, binding: py_func, "
    "inputs: {x: {shape: [2]}}, outputs: {y: {dtype: float64}}"
)
SKIPPED = f"""
ops:
  - {{op: no_device, device: 'GPU:7', {PRODUCT}}}
  - {{op: nothing, pairs: {{'*': {{expect: skip, reason: by hand}}}}, {PRODUCT}}}
  - {{op: one_pair, pairs: {{dy/dw: skip}}, {PRODUCT}}}
  - {{op: other_version, tensorflow: '<2.17', {PRODUCT}}}
  - {{op: one_mode, modes: [graph, xla], {NUMPY}}}
  - {{op: no_mode, modes: [xla], {NUMPY}}}
"""
MORE_CODE = """
def product(x, w):
    return x * w

def numpy_square(x):
    return x * x

def numpy_gradient(upstream, x):
    return 2 * upstream * x
"""


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_skipped_fails_as_in_a_run(project, strict):
    project.makepyfile(functions=CODE + MORE_CODE)
    project.path.joinpath("skip.gradcheck.yaml").write_text(SKIPPED)
    project.makepyprojecttoml(f"[tool.gradcheck]\nstrict = {str(strict).lower()}\n")
    result = project.runpytest_subprocess("--gradcheck", "-v", "skip.gradcheck.yaml")
    fails = {"no_device::default::case", "nothing::default::case", "no_mode::default::case"}
    skips = {
        "nothing::default::dy/dx",
        "nothing::default::dy/dw",
        "one_pair::default::dy/dw",
        "other_version::default::case",
        "one_mode::default-xla::case",
    }
    assert set(names(result, "FAILED")) == (fails | skips if strict else fails)
    assert set(names(result, "SKIPPED")) == (set() if strict else skips)
    assert len(names(result, "PASSED")) == 4  # two pairs, and two cases of which they are
    assert "nothing of this case was checked: by hand" in result.stdout.str()
    options = ("run", "-q", "--format", "concise", "skip.gradcheck.yaml")
    for op in ("nothing", "one_pair", "one_mode"):
        code = project.run(sys.executable, "-m", "gradcheck_cli", *options, "--op", op).ret
        assert bool(code) == any(name.startswith(op) for name in names(result, "FAILED")), op


def test_a_pair_that_opening_the_case_had_not_shown_is_judged_with_the_case(project):
    """Here the process that opens cases sees another function than the one that checks them."""
    project.path.joinpath("changing.py").write_text(
        "import os\nimport tensorflow as tf\n\n@tf.custom_gradient\ndef off(x):\n"
        "    return x * x, lambda u: 3 * u * x\n\ndef f(x):\n"
        "    return (x, off(x)) if os.path.exists('collected') else x\n"
    )
    project.path.joinpath("new.gradcheck.yaml").write_text(
        "op: new\nforward: changing:f\ninputs: {x: {shape: [2]}}\n"
    )
    project.makeconftest("def pytest_collection_finish():\n    open('collected', 'w').close()\n")
    result = project.runpytest_subprocess("--gradcheck", "-v", "new.gradcheck.yaml")
    assert "new::default::case" in names(result, "FAILED")
    assert "dy1/dx" in result.stdout.str()


def test_configured_specs_are_collected_unless_the_command_line_says_what(project):
    settings = "[tool.gradcheck]\nspecs = 'gradients'\n[tool.pytest.ini_options]\ntestpaths = 'tests'\n"
    project.makepyprojecttoml(settings)
    text = "op: sine\nforward: tensorflow:sin\ninputs: {x: {shape: [2]}}\n"
    (project.mkdir("gradients") / "sine.yaml").write_text(text)
    (project.mkdir("tests") / "test_one.py").write_text(PLAIN)
    project.runpytest_subprocess("--gradcheck").assert_outcomes(passed=3)
    project.runpytest_subprocess("--gradcheck", "tests").assert_outcomes(passed=1)


def test_a_library_of_a_repository_has_its_own_specs(project):
    for name in ("a", "b"):
        folder = project.mkdir(name)
        (folder / "pyproject.toml").write_text(f"[tool.gradcheck]\nspecs = 'of_{name}'\n")
        (folder / "of_a").mkdir()
        (folder / "of_b").mkdir()
        (folder / f"of_{name}" / f"there_{name}.py").write_text("def double(x):\n    return 2 * x\n")
        text = f"op: {name}\nforward: there_{name}:double\ninputs: {{x: {{shape: [2]}}}}\n"
        (folder / f"of_{name}" / "double.yaml").write_text(text)
        (folder / "of_a" / "workflow.yaml").touch()  # in b no spec
    (project.path / "a" / "of_a" / "workflow.yaml").unlink()
    result = project.runpytest_subprocess("--gradcheck", "-v", "a", "b/of_b")
    assert names(result, "PASSED") == [f"{op}::default::{what}" for op in "ab" for what in ("case", "dy/dx")]
    assert names(project.runpytest_subprocess("--gradcheck", "-v", "b"), "PASSED") == [
        "b::default::case",
        "b::default::dy/dx",
    ]
