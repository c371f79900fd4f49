"""`gradcheck init`: what it writes validates, and runs where a shape can be had."""

import sys

import pytest
import yaml

import gradcheck_cli
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.features.init import drafting
from gradcheck_cli.features.init.drafting import draft
from gradcheck_cli.results import Status
from tests.support import processes

pytestmark = pytest.mark.once

CODE = """
import numpy as np
import tensorflow as tf

@tf.custom_gradient
def log1pexp(x):
    e = tf.exp(x)
    return tf.math.log(1 + e), lambda u: u * (1 - 1 / (1 + e))

@tf.custom_gradient
def too_few(x, y):
    return x * y, lambda u: u * y

def huber(p, t, delta=1.0):
    e = p - t
    return tf.where(tf.abs(e) <= delta, 0.5 * e**2, delta * (tf.abs(e) - 0.5 * delta))

def two(a, b):
    return tf.matmul(a, b), tf.reduce_sum(a)

def cube(x):
    return np.power(x, 3)

def cube_grad(op, u):
    return 3 * op.inputs[0] ** 2 * u

def conv(x: tf.TensorSpec([1, 4, 4, 2], tf.float32), w=np.ones((2, 2, 2, 1), np.float32)):
    return tf.nn.conv2d(x, w, 1, "SAME")

@tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float64)])
def signed(x):
    return tf.sin(x)

def only_single(x):
    return tf.cast(x, tf.float32) + tf.constant(1.0) if x.dtype == tf.float32 else x + tf.constant(1.0)

def never(x):
    raise ValueError("not today")

def unwritten(x):
    return np.tanh(x)

@tf.custom_gradient
def with_beta(x, beta=1.0):
    s = tf.sigmoid(beta * x)
    return x * s, lambda u: (u * (s + beta * x * s * (1 - s)), tf.reduce_sum(u * x * x * s * (1 - s)))

@tf.custom_gradient
def matvec(a, x):
    y = tf.linalg.matvec(a, x)
    return y, lambda u: (u[:, None] * x[None], tf.linalg.matvec(a, u, transpose_a=True))

def norm_of_quaternion(q):
    w, x, y, z = tf.unstack(q)
    return w * w + x * x + y * y + z * z

@tf.custom_gradient
def leaky(x):  # in float64 its forward runs, and its gradient's 1.0 is of float32
    return tf.maximum(x, 0.1 * x), lambda u: u * tf.where(x > 0, 1.0, tf.constant(0.1, x.dtype))

class Propagate(tf.keras.layers.Layer):
    def call(self, inputs):
        x, adjacency = inputs
        return adjacency @ tf.sin(x)

@tf.custom_gradient
def square_only(a):
    n = float(a.shape[-1])
    return tf.reduce_sum(a * a, -2) / n, lambda u: 2 * a * u[..., None, :] / float(a.shape[-2])

@tf.custom_gradient
def positive_only(x):
    return x * tf.abs(x), lambda u: 2 * x * u

@tf.custom_gradient
def lacks_a_sum(x, w):
    return x + w, lambda u: (u, u)

@tf.custom_gradient
def focal(logits, labels, gamma=2.0):
    p = tf.sigmoid(logits)
    t = labels * p + (1 - labels) * (1 - p)
    d = (2 * labels - 1) * (1 - t) ** gamma * (gamma * t * tf.math.log(t) - (1 - t))
    return -((1 - t) ** gamma) * tf.math.log(t), lambda u: (u * d, None)

@tf.custom_gradient
def focal_without_gamma(logits, labels):
    p = tf.sigmoid(logits)
    t = labels * p + (1 - labels) * (1 - p)
    d = (2 * labels - 1) * (1 - t) ** 2 * (t * tf.math.log(t) - (1 - t))
    return -((1 - t) ** 2) * tf.math.log(t), lambda u: (u * d, None)

@tf.custom_gradient
def dropped(x, mask):
    return x * mask, lambda u: (u * mask * mask, None)

@tf.custom_gradient
def power_law(x, a, b):  # of x within 0 and 1
    y = tf.pow(x, a) * tf.pow(1 - x, b)
    return y, lambda u: (
        u * y * (a / x - b / (1 - x)), u * y * tf.math.log(x), u * y * tf.math.log(1 - x)
    )

@tf.custom_gradient
def lacks_a_transpose(a):
    return tf.linalg.logdet(a @ tf.transpose(a)) / 2, lambda u: u * tf.linalg.inv(a)

@tf.custom_gradient
def slightly_off(x):
    return tf.sin(x), lambda u: u * tf.cos(x) * (1 + 1e-5)

@tf.custom_gradient
def positive_only_at_last(x):
    return tf.math.log(x), lambda u: u / x

@tf.custom_gradient
def poisson(rate, counts):
    return rate - counts * tf.math.log(rate), lambda u: (u * (1 - counts / rate), -u * tf.math.log(rate))
"""

POSITIVE = {"shape": [3], "uniform": {"low": 0.5, "high": 2}}
NORMAL = {"normal": {"mean": 0, "stddev": 1}}


def run(*arguments, folder):
    return processes.run(sys.executable, "-m", "gradcheck_cli", *arguments, cwd=folder)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "functions_of_init.py").write_text(CODE)
    return tmp_path


@pytest.fixture
def drafted(project, monkeypatch):
    monkeypatch.chdir(project)
    return lambda name: draft(f"functions_of_init:{name}")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("log1pexp", {"inputs": {"x": {"shape": [3]}}}),
        ("two", {"outputs": ["y0", "y1"], "inputs": {"a": {"shape": [2, 3]}, "b": {"shape": [3, 2]}}}),
        ("norm_of_quaternion", {"inputs": {"q": {"shape": [4]}}}),
        ("leaky", {"inputs": {"x": {"shape": [3], "dtype": "float32"}}}),
        ("Propagate", {"inputs": {"inputs": [{"shape": [2, 2]}, {"shape": [2, 2]}]}}),
        ("cube", {"gradient": "functions_of_init:cube_grad", "binding": "py_func"}),
        ("signed", {"inputs": {"x": {"shape": [2, 3]}}}),
        ("with_beta", {"attrs": None, "inputs": {"x": {"shape": [3]}, "beta": {"value": 1.0}}}),
        ("matvec", {"inputs": {"a": {"shape": [2, 3]}, "x": {"shape": [3]}}}),
        ("poisson", {"inputs": {"rate": POSITIVE, "counts": {"dtype": "float64", "value": [1, 1, 2]}}}),
        ("only_single", {"inputs": {"x": {"shape": [3], "dtype": "float32"}}}),
    ],
)
def test_what_is_drafted_runs(drafted, name, expected):
    found = drafted(name)
    assert found.is_right, found.trouble
    written = yaml.safe_load(found.draft.text())
    assert {key: written.get(key) for key in expected} == expected
    assert written == found.draft.mapping()


# What people write, and what its spec must say for a run to test something.
WRITTEN = {
    "huber": {"attrs": {"delta": 1.0}},
    "with_axis": {"attrs": {"axis": 1}, "inputs": {"x": {"shape": [2, 3]}}},
    "masked": {},
    "state": {},
    "factory": {"build": {"power": 1.0}},
    "Module": {"variables": True},
    "Drawn": {"variables": True, "inputs": {"x": {"shape": [2, 3], "dtype": "float32"}}},
    "Plain": {"variables": None},
    "Dense": {"build": {"units": 2, "dtype": "float64"}, "variables": True},
    "Model": {"build": {}, "variables": True},
    "by_key": {"inputs": {"features": {"dict": {"left": {"shape": [3]}, "right": {"shape": [3]}}}}},
    "summed": {"inputs": {"tensors": [{"shape": [3]}, {"shape": [3]}]}},
    "variadic": {"inputs": {"tensors0": {"shape": [3]}, "tensors1": {"shape": [3]}}},
    "counted": {"attrs": {"how_often": 2, "name": "name"}},
    "reduced": {"attrs": None, "inputs": {"x": {"shape": [3]}}},
    "attention": {"attrs": None},
    "log_determinant": {"inputs": {"a": {"shape": [3, 3], "spd": True, "symmetric": True}}},
    "power": {"inputs": {"z": {"shape": [3], "dtype": "complex128"}}},
    "cross_entropy": {"inputs": {"logits": {"shape": [2, 3]}, "labels": {"value": [1, 2], "dtype": "int32"}}},
    "gathered": {"inputs": {"table": {"shape": [3]}, "indices": {"value": [1, 1, 2], "dtype": "int32"}}},
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_people_write_is_run_and_right(name):
    found = draft(f"tests.acceptance.drafted_functions:{name}")
    assert found.is_right, (found.draft.text(), found.trouble)
    written = found.draft.mapping()
    assert {key: written.get(key) for key in WRITTEN[name]} == WRITTEN[name]


def test_arguments_of_other_kinds_are_told_by_name_and_type():
    mask = draft("tests.acceptance.drafted_functions:masked").draft.mapping()["inputs"]["mask"]
    assert mask["dtype"] == "bool"
    state = draft("tests.acceptance.drafted_functions:state").draft.mapping()["inputs"]["state"]
    assert (state["object"], list(state["fields"])) == (
        "tests.acceptance.drafted_functions:State",
        ["h", "c"],
    )


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("tensorflow.linalg:cholesky", "spd"),
        ("tests.acceptance.drafted_functions:factor", "spd"),
        ("tensorflow:sqrt", "uniform"),
    ],
)
def test_domains_are_found_by_what_fails(target, says):
    found = draft(target)
    assert found.is_right, (found.draft.text(), found.trouble)
    assert says in found.draft.text()


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("Methods", "has neither call nor __call__"),
        ("lonely_grad", "is a gradient function.* Write a spec with 'gradient: tests.*:lonely_grad'"),
    ],
)
def test_what_is_no_forward_is_refused_with_what_to_name_instead(target, why):
    with pytest.raises(CaseFailedError, match=why):
        draft(f"tests.acceptance.drafted_functions:{target}")


def test_a_draft_of_which_a_run_fails_is_never_silent(project):
    (project / "functions_of_init.py").write_text(
        "import tensorflow as tf\n@tf.custom_gradient\ndef off(x):\n    return x * x, lambda u: 2.1 * x * u\n"
    )
    made = run("init", "functions_of_init:off", folder=project)
    assert made.returncode == 0
    assert "The first run finds:\n  dy/dx is mismatched: " in made.stderr


@pytest.mark.parametrize(
    ("name", "right", "asked"),
    [
        ("square_only", {"a": {"shape": [3, 3]}}, {"a": {"shape": [2, 3]}}),
        ("positive_only", {"x": POSITIVE}, {"x": {"shape": [3], **NORMAL}}),
        ("lacks_a_sum", {"x": {"shape": [3]}, "w": {"shape": [3]}}, {"x": {"shape": [2, 3]}}),
        (
            "focal",
            {
                "logits": {"shape": [2, 3]},
                "labels": {"shape": [2, 3], "one_hot": True, "differentiate": False},
            },
            {"labels": {"shape": [2, 3], "probabilities": True, "differentiate": True}},
        ),
        (
            "dropped",
            {"x": {"shape": [3]}, "mask": {"value": [1.0, 0.0, 1.0], "differentiate": False}},
            {"mask": {"shape": [3], **NORMAL, "differentiate": True}},
        ),
        (
            "lacks_a_transpose",
            {"a": {"shape": [3, 3], "spd": True, "symmetric": True}},
            {"a": {"shape": [3, 3], **NORMAL, "symmetric": False}},
        ),
        (
            "power_law",
            {name: {"shape": [3], "uniform": {"low": 0.1, "high": 0.9}} for name in "xab"},
            {name: {"shape": [2, 3], "uniform": {"low": 0.1, "high": 0.9}} for name in "xa"},
        ),
    ],
)
def test_a_gradient_that_is_right_for_some_inputs_only_is_a_question(drafted, name, right, asked):
    """It is no accusation, since the others may lie outside its domain; but a run of it isn't green."""
    found = drafted(name)
    assert found.result.status is Status.PASSED
    assert found.trouble.startswith("is it meant for ")
    written = yaml.safe_load(found.draft.text())
    assert (written["inputs"], written["cases"][0]["inputs"]) == (right, asked)
    report = gradcheck_cli.check(written)
    assert [case.status for case in report.cases] == [Status.PASSED, Status.SKIPPED]
    assert report.exit_code == 3
    del written["cases"][0]["pairs"]  # it is meant: then it is wrong
    assert gradcheck_cli.check(written).exit_code == 1


def test_a_gradient_that_is_wrong_for_labels_of_0_and_1_is_shown_with_these(drafted):
    """Not with labels between them or complex ones: for these, a right one may be wrong, too."""
    found = drafted("focal_without_gamma")
    assert found.is_mismatched
    assert not found.told
    assert [pair.label for pair in found.result.pairs] == ["dy/dlogits"]
    assert found.draft.mapping()["inputs"]["labels"]["one_hot"]


def test_a_gradient_is_not_right_since_a_coarser_dtype_tolerates_it(drafted):
    found = drafted("slightly_off")
    assert found.is_mismatched
    assert "is mismatched: the gradient is (1 + 1e-05) times the derivative" in found.trouble


def test_tries_end_when_their_time_is_spent_and_the_draft_says_so(drafted, monkeypatch):
    monkeypatch.setattr(drafting, "_MOST_SECONDS", 0)
    found = drafted("positive_only_at_last")
    assert not found.is_right
    assert "# not tried, for lack of time (0 s): " in found.draft.text()


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        # A size and a dtype of a weight, which only the message says.
        ("project", {"features": {"shape": [2, 5], "dtype": "float32"}}),
        # A rank that a message says, and another shape for the second.
        ("causal_conv1d", {"inputs": {"shape": [2, 3, 2]}, "kernel": {"shape": [2, 2, 2]}}),
        (
            "sparse_scores",
            {"adjacency": {"shape": [3, 3], "sparse": {"nnz": 4}}, "features": {"shape": [3, 2]}},
        ),
        ("layer_norm", {"x": {"shape": [2, 3]}, "gamma": {"shape": [3]}, "beta": {"shape": [3]}}),
    ],
)
def test_each_argument_has_its_own_shape_and_dtype(name, inputs):
    found = draft(f"tests.acceptance.drafted_functions:{name}")
    assert found.is_right, found.trouble
    assert found.draft.mapping()["inputs"] == inputs


def test_a_size_of_2_is_read_from_the_message():
    found = draft("tests.acceptance.drafted_functions:complex_multiply")
    assert found.result.status is Status.PASSED
    assert found.draft.mapping()["inputs"] == {"a": {"shape": [2]}, "b": {"shape": [2]}}


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("Plain.method", {"build": {}}),
        ("Methods.scale", {"build": {}}),
        ("Settings.power", {"build": {"n": 2}, "attrs": {"bits": 4, "mode": "same"}}),
    ],
)
def test_a_method_is_drafted_with_what_makes_its_object(name, written):
    found = draft(f"tests.acceptance.drafted_functions:{name}")
    assert found.is_right, found.trouble
    assert found.draft.mapping()["forward"] == f"tests.acceptance.drafted_functions:{name}"
    assert {key: found.draft.mapping()[key] for key in written} == written


def test_the_words_beside_guesses(drafted):
    text = drafted("log1pexp").draft.text()
    assert "x: {shape: [3]}  # a guess that works: put your own here" in text
    assert "reference: module:function   # if the gradient isn't the derivative on purpose" in text
    assert "x: {shape: [3]}  # a guess: put your own here" in drafted("never").draft.text()


def test_a_draft_that_can_not_run_exits_with_3_and_suggests_no_run(project):
    made = run("init", "functions_of_init:never", folder=project)
    assert made.returncode == 3
    assert "This draft doesn't run yet:\n  the forward raised ValueError: not today" in made.stderr
    remedy = (
        "Give inputs that the function takes, with 'shape', 'dtype' or 'value', and what isn't a tensor "
        "under 'attrs'; then run it: gradcheck run FILE."
    )
    assert remedy in made.stderr
    assert "# This draft doesn't run yet:" in (project / "specs" / "never.yaml").read_text()
    assert "check it" not in made.stderr


def test_no_inputs_are_asked_for_where_a_gradient_can_not_run(project):
    made = run("init", "functions_of_init:too_few", folder=project)
    assert made.returncode == 3
    assert "must return 2 gradients" in made.stderr
    assert made.stderr.endswith("\n  Mend that, then run it: gradcheck run FILE.\n")
    assert "# a guess: put" in (project / "specs/too_few.yaml").read_text()


def test_annotations_and_defaults_give_shapes_and_dtypes(drafted):
    written = drafted("conv").draft.mapping()["inputs"]
    assert written["x"] == {"shape": [1, 4, 4, 2], "dtype": "float32"}
    assert written["w"]["dtype"] == "float32"


@pytest.mark.parametrize("op_type", ["MatMul", "Conv2D", "ConcatV2", "GatherV2", "Einsum", "Pad"])
def test_op_types(op_type):
    found = draft(op_type)
    written = yaml.safe_load(found.draft.text())
    assert written["op_type"] == op_type
    assert found.runs or op_type == "Einsum", found.trouble  # whose equation nobody can guess


def test_from_an_empty_folder_to_a_verdict(project):
    made = run("init", "functions_of_init:log1pexp", folder=project)
    assert (made.returncode, made.stdout) == (0, "")
    assert made.stderr.splitlines() == [
        "wrote specs/log1pexp.yaml",
        "check it: gradcheck run specs/log1pexp.yaml",
    ]
    assert run("validate", folder=project).returncode == 0
    checked = run("run", folder=project)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    again = run("init", "functions_of_init:log1pexp", folder=project)
    assert again.returncode == 2
    assert "log1pexp.yaml: exists already" in again.stderr
    assert run("init", "functions_of_init:log1pexp", "--force", folder=project).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "name either MODULE:FUNCTION, --op-type TYPE or --missing PACKAGE"),
        (("a:b", "--op-type", "MatMul"), "name either MODULE:FUNCTION, --op-type TYPE or --missing PACKAGE"),
        (("huber",), "must be MODULE:FUNCTION, such as ops:huber, but got 'huber'"),
        (("functions_of_init:hubr",), "Did you mean 'huber'?"),
        (("nowhere:f",), "no module named 'nowhere'"),
        (("--op-type", "MatMull"), "Did you mean"),
        (("functions_of_init:huber", "-o", "nowhere/a.yaml"), "there is no folder nowhere; make it first"),
        # Before anything is drafted, which takes a while.
        (("nowhere:f", "-o", "nowhere/a.yaml"), "there is no folder nowhere; make it first"),
        (("nowhere:f", "-o", "functions_of_init.py"), "functions_of_init.py: exists already"),
    ],
)
def test_bad_usage(project, arguments, told):
    done = run("init", *arguments, folder=project)
    assert done.returncode in (2, 3)
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_what_has_no_spec_gets_one_each(project):
    """Of a gradient function it is the forward's; the schema beside specs is named to editors."""
    (project / "specs").mkdir()
    package = project / "own"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "ops.py").write_text(OWN)
    (project / "gradcheck.schema.json").write_text("{}")
    assert run("init", "own.ops:soft_grad", folder=project).returncode == 0
    soft = (project / "specs" / "soft.yaml").read_text()
    assert soft.startswith("# yaml-language-server: $schema=../gradcheck.schema.json\nop: soft\n")
    assert "gradient: own.ops:soft_grad" in soft
    made = run("init", "--missing", "own", folder=project)
    assert made.returncode == 3, made.stderr
    assert "own: 3 of 3 gradients have no spec" in made.stderr
    assert "OwnInvented: is no op type, but a name that gradient_override_map uses." in made.stderr
    assert {"first.yaml", "second.yaml"} <= {file.name for file in (project / "specs").iterdir()}
    assert "own: 1 of 3 gradients have no spec" in run("init", "--missing", "own", folder=project).stderr


OWN = """\
import tensorflow as tf


@tf.custom_gradient
def first(x):
    return x * x, lambda u: 2 * x * u


@tf.custom_gradient
def second(x):
    return tf.sin(x), lambda u: tf.cos(x) * u


def soft(x):
    return tf.math.softplus(x)


def soft_grad(op, upstream):
    return upstream * tf.sigmoid(op.inputs[0])


@tf.RegisterGradient("OwnInvented")
def invented(op, upstream):
    return upstream
"""
