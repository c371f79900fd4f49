"""`gradcheck run --cov`: a gradient without a spec is named, counted, and fails the gate if it is to."""

import json

import pytest

from tests.support.processes import git

pytestmark = pytest.mark.once

FILES = {
    "pkg/__init__.py": "",
    "pkg/ops.py": """import tensorflow as tf


@tf.custom_gradient
def checked(x):
    return x * x, lambda dy: 2 * dy * x


@tf.custom_gradient
def unchecked(x):
    return x * x, lambda dy: 3 * dy * x


def make(k):
    @tf.custom_gradient
    def made(x):
        return k * x, lambda dy: k * dy

    return made


@tf.custom_gradient
def sloppy(x):
    return x * x, lambda dy: dy * x
""",
    "pkg/gpu.py": "import no_such_module\n",
    "pkg/tests/__init__.py": "",
    "pkg/tests/test_ops.py": "import no_such_module  # for tests, custom_gradient\n",
    "pkg/second.py": """import tensorflow as tf


@tf.custom_gradient
def slope(x, dy):
    return 3 * dy * x * x, lambda u: (6 * u * dy * x, 3 * u * x * x)


@tf.custom_gradient
def cube(x):
    return x * x * x, lambda dy: slope(x, dy)


def make(k):
    @tf.custom_gradient
    def times(x):
        return k * x, lambda dy: k * dy

    return times


double = make(2.0)
triple = make(3.0)
NAMES = {"Round": "Identity"}


def rounded(x):
    with tf.compat.v1.get_default_graph().gradient_override_map(NAMES):
        return tf.round(x)


def same(x):
    return x
""",
    "pkg/wrapped.py": '''import tensorflow as tf


def with_gradient(backward):
    """A decorator that no text gives away."""

    def decorator(forward):
        def both(x):
            return forward(x), lambda dy: backward(dy, x)

        return getattr(tf, "custom_" + "gradient")(both)

    return decorator


@with_gradient(lambda dy, x: 3 * dy * x * x)
def cube(x):
    return x * x * x
''',
    "specs/ops.yaml": """
op: checked
forward: pkg.ops:checked
inputs: {x: {shape: [2]}}
---
op: made
forward: pkg.ops:make
build: {k: 2.0}
inputs: {x: {shape: [2]}}
---
op: cube
forward: pkg.second:cube
inputs: {x: {shape: [2]}}
second_order: true
---
op: double
forward: pkg.second:double
inputs: {x: {shape: [2]}}
---
op: rounded
forward: pkg.second:rounded
reference: pkg.second:same
inputs: {x: {shape: [2]}}
---
op: sloppy
forward: pkg.ops:sloppy
inputs: {x: {shape: [2]}}
expect: mismatch
reason: known to be half of it
""",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def statuses(content):
    return {one["name"]: one["status"] for one in content["gradients"]}


EXPECTED = {
    "pkg.gpu": "missing",
    "pkg.ops:checked": "covered",
    "pkg.ops:unchecked": "missing",
    "pkg.ops:make.<locals>.made": "covered",
    "pkg.ops:sloppy": "excused",
    "pkg.second:cube": "covered",
    "pkg.second:slope": "covered",  # at second order
    "pkg.second:make.<locals>.times": "covered",
    "pkg.second:make.<locals>.times made at line 22": "covered",
    "pkg.second:make.<locals>.times made at line 23": "missing",
    "pkg.second:rounded.<locals>.line 28": "covered",
    "pkg.tests.test_ops": "excused",
    "pkg.wrapped:with_gradient.<locals>.decorator.<locals>.both": "missing",
}


def test_every_gradient_has_its_word(project, process):
    done = process(
        *("run", "--cov", "pkg", "--cov-fail-under", "100", "--report", "json=r.json", "--report", "github"),
        *("-j", "1"),
        cwd=project,
    )
    assert done.returncode == 3, done.stderr
    content = json.loads((project / "r.json").read_text())["coverage"]
    assert statuses(content) == EXPECTED
    counts = [content[key] for key in ("covered", "missing", "excused", "percent")]
    assert counts == [7, 4, 2, 63.636]
    lines = done.stdout.splitlines()
    assert "  missing  pkg.ops:unchecked  pkg/ops.py:10" in lines
    assert (
        "hand-written gradients of pkg: 7 of 11 covered (63.6 %), 2 excused, 2 modules not imported, "
        "--cov-fail-under 100 isn't reached"
    ) in " ".join(line.strip() for line in lines)
    assert "::error file=pkg/ops.py,line=10,title=gradcheck%3A pkg.ops%3Aunchecked%3A not covered" in (
        done.stdout.replace("gradcheck: ", "gradcheck%3A ")
    )
    merged = process("merge", "r.json", "--format", "json", cwd=project)
    assert (merged.returncode, json.loads(merged.stdout)["coverage"]) == (3, content)


def test_a_new_gradient_in_a_changed_file_fails(project, command):
    (project / "pyproject.toml").write_text("[tool.gradcheck]\ncov = 'pkg'\ncov-fail-under = 100\n")
    (project / ".gitignore").write_text(".gradcheck_cache/\n__pycache__/\n")
    for line in ("init -q", "add -A", "commit -qm start"):
        git(project, *line.split())
    done = command("run", "--changed")
    assert (done.code, "there are none" in done.out) == (0, True)
    new = "\n\n@tf.custom_gradient\ndef new(x):\n    return x, lambda dy: dy\n"
    (project / "pkg" / "late.py").write_text("import tensorflow as tf" + new)
    done = command("run", "--changed")
    assert done.code == 3
    assert "hand-written gradients of pkg changed since HEAD: 0 of 1 covered (0.0 %)" in done.out
    assert "  missing  pkg.late:new  pkg/late.py:4" in done.out
    # Selected cases cover what they cover: the file's share doesn't apply to them.
    done = command("run", "--op", "checked")
    assert (done.code, "so it doesn't apply" in done.err) == (0, True)
