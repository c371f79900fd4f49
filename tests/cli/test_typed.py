"""What people type who know pytest, ruff, torch or JAX: each is done, or answered with the line to type."""

import pytest

from gradcheck_cli.cli.options.typed_words import NamedSpec, keep_named
from gradcheck_cli.spec.load import load_cases

SPECS = """
op: huber
forward: pkg.losses:huber
inputs: {x: {shape: [3]}}
cases: [{name: near}, {name: far}]
---
op: hinge
forward: pkg.losses:hinge
gradient: pkg.losses:hinge_grad
dtypes: [float32, float64]
inputs: {x: {shape: [3]}}
"""


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    for folder in ("pkg", "specs", "src"):
        (tmp_path / folder).mkdir()
    for file in ("pkg/__init__.py", "pkg/losses.py", "pkg/norms.py", "src/alone.py"):
        (tmp_path / file).write_text("")
    (tmp_path / "specs" / "losses.yaml").write_text(SPECS)
    monkeypatch.chdir(tmp_path)


HUBER = "gradcheck run specs/losses.yaml --op huber"
TYPED = {
    # functions, modules and names in place of specs
    "run pkg.losses:huber": f"has one. Type: {HUBER}",
    "run pkg/losses.py:huber": HUBER,
    "run pkg/losses.py::huber": HUBER,
    "run pkg.losses.huber": HUBER,
    "run huber": f"huber is the name of an op. Type: {HUBER}",
    "run pkg.losses:hinge_grad": "gradcheck run specs/losses.yaml --op hinge",
    "run pkg/losses.py": "pkg/losses.py is no spec, but has one. Type: gradcheck run specs/losses.yaml",
    "run pkg.losses": "Type: gradcheck run specs/losses.yaml",
    "run pkg": "Type: gradcheck run specs/losses.yaml",
    "run pkg/": "Type: gradcheck run specs/losses.yaml",
    "run pkg.norms:rms": "gradcheck run takes specs. Write one: gradcheck init pkg.norms:rms",
    "run pkg/norms.py": "Write one: gradcheck init --missing pkg.norms",
    "run src/alone.py": "Write one: gradcheck init --missing src.alone",
    "run numpy.square": "Write one: gradcheck init numpy:square",
    "run specs/loses.yaml": "no such file or folder. Did you mean 'losses.yaml'?",
    "run specs/losses.yaml::hubert": "no op is named 'hubert'. Did you mean 'huber'?",
    "run specs/losses.yaml::huber::neer": "no case is named 'neer'. Did you mean 'near'?",
    "run --op hubr": "no op is named 'hubr'. Did you mean 'huber'?",
    "run --case nera": "no case is named 'nera'. Did you mean 'near'?",
    "validate pkg.losses:huber": "Type: gradcheck validate specs/losses.yaml --op huber",
    "show huber": "Type: gradcheck show specs/losses.yaml --op huber",
    "blame pkg/losses.py:hinge": "Type: gradcheck blame specs/losses.yaml --op hinge",
    "search huber": "Type: gradcheck search specs/losses.yaml --op huber",
    "mutate pkg.losses": "Type: gradcheck mutate specs/losses.yaml",
    "init huber": "must be MODULE:FUNCTION, such as ops:huber, but got 'huber'",
    "init MatMul": "For an op type, type: gradcheck init --op-type MatMul",
    "init pkg.losses": "is a whole module. Type: gradcheck init --missing pkg.losses",
    "init pkg/losses.py": "Type: gradcheck init --missing pkg.losses",
    "init pkg": "Type: gradcheck init --missing pkg, or: gradcheck init pkg:FUNCTION",
    # commands
    "check": "No such command 'check'. Type: gradcheck run",
    "check specs": "Type: gradcheck run specs",
    "test specs -k huber": "Type: gradcheck run specs -k huber",
    "specs": "No such command 'specs'. Type: gradcheck run specs",
    "specs/losses.yaml -v": "Type: gradcheck run specs/losses.yaml -v",
    "specs/losses.yaml::huber": "Type: gradcheck run specs/losses.yaml::huber",
    "pkg.norms:rms": "Write one: gradcheck init pkg.norms:rms",
    "new pkg.norms:rms": "Type: gradcheck init pkg.norms:rms",
    "rule GC101": "Type: gradcheck explain GC101",
    "watch": "Type: gradcheck run --watch",
    "help": "Type: gradcheck --help",
    "help run": "Type: gradcheck run --help",
    "runn": "Did you mean 'run'?",
    # options of pytest
    "run --html report.html": "No such option '--html'. Type --report html=FILE.",
    "run --junitxml=out.xml": "Type --report junit=FILE.",
    "run -n 4": "Type -j N.",
    "run --maxfail 1": "Type --max-failures N.",
    "run --co": "Type --collect-only.",
    "run --pdb": "Type -j 0.",
    "run -m slow": "Type --tag TAG.",
    "run --deselect huber": "Type -k 'not NAME'.",
    "run --sw": "Type -x --ff.",
    # of ruff and other linters
    "run --output-format json": "Type --format NAME.",
    "run --fix": "Type gradcheck blame SPEC, which finds the line to mend.",
    "run --exclude huber": "Type -k 'not NAME'.",
    "run --add-noqa": "Type --update-baseline FILE --accept.",
    "run --exit-zero": "Type || true after the command.",
    "run --since main": "Type --changed REV.",
    "run --format junti": "'concise', 'html'. Did you mean 'junit'?",
    "run --pair dy/dx": "No such option '--pair'. It is an option of gradcheck show, blame, trace.",
    "validate --strict": "It is an option of gradcheck run, search.",
    # of versions before
    "search specs/losses.yaml --write": "Type the line 'check it there:' that stands below a finding.",
    # of torch, JAX and TensorFlow
    "run --rtol 1e-3": "Type tolerance: {rtol: 1e-3, atol: 1e-6} in the spec.",
    "run --eps 1e-4": "Type nothing: the steps are chosen for each element.",
    "run --order 2": "Type second_order: true in the spec.",
    "run --nondet_tol 1e-6": "Type nondeterminism: {atol: 1e-6} in the spec.",
    "run --check-batched-grad": "Type checks: {batched: true} in the spec.",
    "run --check_undefined_grad": "Type nothing: zero_upstream is checked by itself.",
    "run --fast_mode": "Type --budget SECONDS.",
    "run --cuda": "Type --device GPU:0.",
    "run --jit-compile": "Type --mode xla.",
    "run --dtype float32": "Type dtypes: [float32, float64] in the spec.",
    "run --mode eagr": "'eagr' is not one of 'graph', 'dynamic', 'eager', 'xla'. Did you mean 'eager'?",
    "mutate --kind sgin": "Did you mean 'sign'?",
}


@pytest.mark.feature
@pytest.mark.parametrize("line", TYPED)
def test_each_is_answered_with_the_line_to_type(invoke, line):
    result = invoke(*line.split())
    assert result.code in (2, 5), result
    assert TYPED[line] in result.err


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("huber", ["huber default float64", "huber near float64", "huber far float64"]),
        ("huber::far", ["huber far float64"]),
        ("huber::far::dy/dx", ["huber far float64"]),
        ("hinge::default-float32", ["hinge default float32", "hinge default float64"]),
    ],
)
def test_the_name_that_pytest_gives_a_test_selects_its_cases(invoke, name, kept):
    result = invoke("run", f"specs/losses.yaml::{name}", "--collect-only")
    lines = [" ".join(line.split(" · ")[1:]) for line in result.out.splitlines()[:-1]]
    assert (result.code, sorted(lines)) == (0, sorted(kept))


def test_of_another_path_nothing_is_left_out(tmp_path):
    (tmp_path / "specs" / "more.yaml").write_text(
        "op: more\nforward: pkg.losses:more\ninputs: {x: {shape: [3]}}\n"
    )
    named = NamedSpec("specs/losses.yaml")
    named.names = ("hinge",)
    cases = load_cases(["specs/losses.yaml", "specs/more.yaml"])
    assert {case.op for case in keep_named(cases, [named, "specs/more.yaml"])} == {"hinge", "more"}
    assert {case.op for case in keep_named(cases, [named, "specs"])} == {"hinge", "huber", "more"}


KEYS = {
    "fn: a:b": "fn: unknown key. Write 'forward: module:function'",
    "backward: a:b": "Write 'gradient: module:function'",
    "rtol: 1e-3": "Write 'tolerance: {rtol: 1e-3, atol: 1e-6}'",
    "eps: 1e-3": "Write 'method: central; the steps are chosen for each element'",
    "order: 2": "Write 'second_order: true'",
    "shape: [3]": "Write 'inputs: {x: {shape: [3]}}'",
    "xfail: true": "Write 'expect: mismatch'",
    "name: huber": "Write 'op: name'",
    "grad: a:b": "Did you mean 'gradient'?",
    "dtype: float32": "Did you mean 'dtypes'?",
    "inputs: {x: {size: [3]}}": "inputs.x.size: unknown key. Write 'shape: [3]'",
    "inputs: {x: {min: 0}}": "Write 'domain: {low: 0}'",
    "inputs: {x: {uniform: {min: 0, high: 1}}}": "inputs.x.uniform.min: unknown key. Write 'low: 0'",
    "inputs: {x: {requires_grad: true}}": "Write 'differentiate: false'",
}


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_another_tool_is_answered_with_what_to_write(invoke, tmp_path, key):
    inputs = "" if key.startswith("inputs") else "inputs: {x: {}}\n"
    (tmp_path / "specs" / "bad.yaml").write_text(f"op: op\nforward: a:b\n{inputs}{key}\n")
    result = invoke("validate", "specs/bad.yaml")
    assert result.code == 2
    assert KEYS[key] in result.err
