"""`gradcheck list` as users call it, in a process of its own: it imports TensorFlow and their modules."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from importlib.metadata import version

import pytest

from gradcheck_cli.reporting.json_report import to_json
from gradcheck_cli.results import CaseResult, PairResult, Report, Status

MODULE = """
import tensorflow as tf

print("printed on import")

@tf.custom_gradient
def soft(x):
    return x, lambda upstream: upstream

@tf.RegisterGradient("MineSquare")
def mine(op, upstream):
    return upstream
"""
SPEC = "op: product\nop_type: MatMul\ninputs: {a: {shape: [2, 2]}, b: {shape: [2, 2]}}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    (folder / "mygradients.py").write_text(MODULE)
    (folder / "broken.py").write_text("import no_such_module_here\n")
    (folder / "specs").mkdir()
    (folder / "specs" / "product.yaml").write_text(SPEC)
    return folder


@pytest.fixture(scope="module")
def gradients(folder):
    """Call `gradcheck list` in the project's folder."""

    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "gradcheck_cli.cli.main", "list", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return call


@pytest.fixture(scope="module")
def everything(gradients):
    done = gradients("--format", "json", "--status", "all", "--import", "mygradients", "--specs", "specs")
    assert done.returncode == 0, done.stderr
    return done.stderr, json.loads(done.stdout)


def test_start_up_chatter_and_prints_stay_off_standard_output(everything):
    assert everything[0] == "printed on import\n"


def test_imports_come_last_with_their_origin(everything):
    last = everything[1]["gradients"][-2:]
    assert [(entry["op_type"], entry["status"]) for entry in last] == [
        ("MineSquare", "gradient"),
        ("mygradients:soft", "custom_gradient"),
    ]
    assert {entry["origin"] for entry in last} == {"mygradients"}
    assert [(entry["file"], entry["line"]) for entry in last] == [
        ("mygradients.py", 10),
        ("mygradients.py", 6),
    ]


def test_specs_cover_op_types(everything):
    (matmul,) = [entry for entry in everything[1]["gradients"] if entry["op_type"] == "MatMul"]
    assert matmul["specs"] == ["specs/product.yaml:1"]


@pytest.mark.skipif(not version("tensorflow").startswith("2.21."), reason="counts of TensorFlow 2.21")
def test_counts(everything):
    assert everything[1]["op_types"] == 1910
    assert everything[1]["counts"] == {
        "gradient": 414 + 1,
        "not differentiable": 195,
        "none": 1910 - (609 - 4),  # four registered names aren't op types any more
        "custom_gradient": 1,
    }


def test_the_default_leaves_out_op_types_without_an_entry(gradients):
    done = gradients("--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert {row["status"] for row in rows} == {"gradient", "not differentiable"}


def test_patterns_are_globs_in_any_case(gradients):
    done = gradients("batchmatmul*")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:-1]] == [
        "BatchMatMul",
        "BatchMatMulV2",
        "BatchMatMulV3",
    ]
    assert "tensorflow/python/ops/math_grad.py:" in done.stdout


def test_a_plain_name_is_looked_up_without_an_entry_too(gradients):
    done = gradients("quantizedmatmul")
    assert done.stdout.splitlines()[1].split() == ["QuantizedMatMul", "none"]


def test_nothing_found_says_what_is_near(gradients):
    done = gradients("MatMull")
    assert done.returncode == 0
    assert done.stderr == "nothing matches 'MatMull'. Did you mean 'MatMul'?\n"


@pytest.mark.parametrize(
    ("name", "wording"),
    [
        ("no_such", "--import no_such: can't be imported: ModuleNotFoundError: No module named 'no_such'."),
        ("broken", "--import broken: can't be imported: ModuleNotFoundError: No module named 'no_such_m"),
    ],
)
def test_a_module_that_can_not_be_imported(gradients, name, wording):
    done = gradients("--import", name)
    assert done.returncode == 2
    assert done.stderr.startswith(wording)
    assert "Traceback" not in done.stderr


PACKAGE = {
    "mine/__init__.py": "from .ops import soft as exported\n",
    "mine/ops.py": """
import tensorflow as tf

@tf.custom_gradient
def soft(x):
    return x, lambda upstream: upstream

@tf.custom_gradient
def bare(x):
    return x, lambda upstream: upstream

class Ops:
    @staticmethod
    @tf.custom_gradient
    def method(x):
        return x, lambda upstream: upstream

def factory(k):
    @tf.custom_gradient
    def made(x):
        return x, lambda upstream: k * upstream
    return made
""",
    "mine/deep/__init__.py": "",
    "mine/deep/late.py": """
import tensorflow as tf

@tf.RegisterGradient("MineCube")
def cube_grad(op, upstream):
    return upstream

@tf.RegisterGradient("MineSquare")
def square_grad(op, upstream):
    return upstream
""",
    "mine/__main__.py": "raise SystemExit(9)\n",
    "broken_part/__init__.py": "",
    "broken_part/whole.py": """
import tensorflow as tf

@tf.custom_gradient
def f(x):
    return x, lambda upstream: upstream
""",
    "broken_part/half.py": "import no_such_module_here\n",
    "empty.py": "x = 1\n",
    "covering/specs.yaml": """
op: soft
forward: mine:exported
inputs: {x: {shape: [2]}}
---
op: method
forward: mine.ops:Ops.method
inputs: {x: {shape: [2]}}
---
op: cube
op_type: Identity
forward: tensorflow:identity
gradient: mine.deep.late:cube_grad
binding: override
inputs: {x: {shape: [2]}}
---
op: made
forward: mine.ops:factory
build: {k: 1.0}
inputs: {x: {shape: [2]}}
---
op: half
forward: broken_part.whole:f
inputs: {x: {shape: [2]}}
""",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Return a function that calls `gradcheck list` beside a package."""
    folder = tmp_path_factory.mktemp("package")
    for name, text in PACKAGE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "gradcheck_cli.cli.main", "list", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return call


COVERAGE = "3 of 5 gradients have a spec (60.0 %); those that factories make can't be seen"


def test_what_no_spec_checks_is_listed(package):
    done = package("--specs", "covering", "--import", "mine", "--uncovered")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-2]] == ["MineSquare", "mine.ops:bare"]
    assert "mine/deep/late.py:8" in lines[1]
    assert lines[-1] == COVERAGE


@pytest.mark.parametrize(("percent", "code"), [("60", 0), ("60.1", 3)])
def test_too_little_coverage_fails(package, percent, code):
    options = ["--specs", "covering", "--import", "mine", "--fail-under", percent, "--format", "csv"]
    done = package(*options)
    assert done.returncode == code, done.stderr
    assert done.stderr == f"{COVERAGE}\n"
    rows = {row["op_type"]: row["specs"] for row in csv.DictReader(io.StringIO(done.stdout))}
    assert rows == {
        "MineCube": "covering/specs.yaml:10",
        "MineSquare": "",
        "mine.ops:soft": "covering/specs.yaml:2",
        "mine.ops:bare": "",
        "mine.ops:Ops.method": "covering/specs.yaml:6",
    }


@pytest.mark.parametrize("asked", [("--fail-under", "0"), ("--uncovered",)])
def test_a_part_that_can_not_be_imported_is_not_covered(package, asked):
    done = package("--specs", "covering", "--import", "broken_part", *asked)
    assert done.returncode == 3
    assert "--import broken_part.half: can't be imported: ModuleNotFoundError" in done.stderr
    assert done.stdout.endswith(
        "1 of 1 gradient has a spec (100.0 %); those that factories make can't be seen\n"
    )


def test_a_package_without_gradients_is_not_covered(package):
    done = package("--specs", "covering", "--import", "empty", "--fail-under", "0")
    assert done.returncode == 3
    assert "no gradients found" in done.stdout


def test_coverage_needs_specs(package):
    done = package("--uncovered")
    assert done.returncode == 2
    assert "--uncovered and --fail-under need --specs DIR." in done.stderr


AUDIT = {
    "tanh.yaml": """
op: tanh
op_type: Tanh
inputs: {x: {shape: [2]}}
---
op: gamma
op_type: Igamma
inputs: {a: {shape: [2], uniform: {low: 1, high: 2}}, x: {shape: [2], uniform: {low: 1, high: 2}}}
pairs: {dz/da: {expect: skip, reason: elsewhere}}
outputs: [z]
---
op: branch
forward: tensorflow:identity
covers: [StatelessIf, NoSuchOpType]
inputs: {x: {shape: [2]}}
---
op: later
op_type: Sin
tensorflow: ">=99"
inputs: {x: {shape: [2]}}
---
op: zeros
op_type: ZerosLike
inputs: {x: {shape: [2]}}
pairs: {"*": {expect: disconnected}}
""",
    "exceptions.yaml": """
exceptions:
  NcclReduce: {kind: gpu, reason: needs two}
  Cos: {kind: other, reason: long ago, tensorflow: "<2"}
  Rank: {kind: nothing, reason: has none}
""",
}


@pytest.fixture(scope="module")
def audit(folder, gradients):
    """Return a function that lists what a folder of specs covers of TensorFlow's registry."""
    (folder / "audit").mkdir()
    for name, text in AUDIT.items():
        (folder / "audit" / name).write_text(text)
    return lambda *arguments: gradients("--specs", "audit", *arguments)


@pytest.fixture(scope="module")
def audited(audit):
    content = json.loads(audit("--format", "json").stdout)
    return content["coverage"], {entry["op_type"]: entry for entry in content["gradients"]}


def test_each_gradient_is_covered_or_excepted_or_missing(audited):
    counts, entries = audited
    words = {name: entries[name]["coverage"] for name in ("Tanh", "StatelessIf", "NcclReduce", "Sin", "Cos")}
    assert words == {
        "Tanh": "covered",
        "StatelessIf": "covered",
        "NcclReduce": "excepted",
        "Sin": "missing",  # by a spec for another TensorFlow
        "Cos": "missing",  # by an exception for another TensorFlow
    }
    gradients = [entry for entry in entries.values() if entry["status"] == "gradient"]
    assert counts["covered"] + counts["excepted"] + counts["missing"] == len(gradients)
    assert (counts["covered"], counts["excepted"], counts["gone"]) == (3, 1, 2)


def test_what_this_tensorflow_has_no_gradient_of_is_gone(audited):
    gone = {name: entry["specs"] for name, entry in audited[1].items() if entry["coverage"] == "gone"}
    assert gone == {"NoSuchOpType": ["audit/tanh.yaml:12"], "Rank": ["audit/exceptions.yaml:5"]}


def test_each_input_has_its_state(audited):
    inputs = {
        name: {one["name"]: (one["state"], one["reason"]) for one in audited[1][name]["inputs"]}
        for name in ("Tanh", "Igamma", "StatelessIf")
    }
    assert inputs == {
        "Tanh": {"x": ("gradient", "")},
        "Igamma": {"a": ("skipped", "elsewhere"), "x": ("gradient", "")},
        "StatelessIf": {"x": ("gradient", "")},
    }


def test_only_some_are_listed_but_all_are_counted(audit):
    done = audit("--coverage", "excepted", "--coverage", "gone")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:-2]] == ["NcclReduce", "NoSuchOpType", "Rank"]
    assert "excepted  gpu: needs two" in lines[1]
    assert lines[-1].startswith("specs: 3 covered, 1 excepted, 4")
    assert lines[-1].endswith(" missing, 2 gone")


def test_excepted_ones_are_left_out_of_what_must_be_covered(audit):
    done = audit("--fail-under", "100", "*nccl*", "--format", "csv")
    assert done.returncode == 3
    assert "0 of 2 gradients have a spec (0.0 %), 1 more excepted; " in done.stderr


def test_a_report_proves_what_specs_cover(audit, folder):
    cases = [
        {"op": "tanh", "status": "passed", "gradients_seen": {"Tanh": 1}},
        {"op": "gamma", "status": "inconclusive", "gradients_seen": {"Igamma": 1}},
        {"op": "branch", "status": "passed", "gradients_seen": {"Identity": 1}},
    ]
    report = Report(
        "0",
        "2",
        "3",
        0,
        tuple(
            CaseResult(
                one["op"],
                "default",
                "a:1",
                "graph",
                "float64",
                Status(one["status"]),
                0.0,
                "",
                pairs=(PairResult("dy/dx", "y", "x", Status(one["status"])),),
                gradients_seen=one["gradients_seen"],
            )
            for one in cases
        ),
    )
    (folder / "report.json").write_text(to_json(report))
    done = audit("--report", "report.json", "--format", "json", "--coverage", "covered")
    assert [entry["op_type"] for entry in json.loads(done.stdout)["gradients"]] == ["Tanh"]
    done = audit("--report", "report.json", "--format", "json")
    entries = {entry["op_type"]: entry["coverage"] for entry in json.loads(done.stdout)["gradients"]}
    found = {name: entries[name] for name in ("Tanh", "Igamma", "StatelessIf")}
    assert found == {"Tanh": "covered", "Igamma": "unproven", "StatelessIf": "unproven"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--coverage", "missing"], "--coverage and --report need --specs DIR."),
        (
            ["--coverage", "missing", "--uncovered", "--specs", "specs"],
            "--coverage and --report go without --uncovered and --fail-under.",
        ),
    ],
)
def test_options_that_do_not_go_together(gradients, arguments, message):
    done = gradients(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
