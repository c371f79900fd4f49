"""Bad input of every kind: a clear message each, the right exit code, no traceback of ours."""

import json
from pathlib import Path

import pytest

GOOD = "op: good\nforward: tensorflow:tanh\ninputs: {x: {shape: [2]}}\n"
OWN = "gradcheck_cli"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def spec(tmp_path):
    """Return a function that writes a spec, and code beside it."""

    def write(text, code=None, name="op.yaml"):
        (tmp_path / name).write_text(text)
        if code is not None:
            (tmp_path / "bad_input_ops.py").write_text(code)
        return name

    return write


@pytest.fixture(autouse=True)
def _forget():
    import sys

    yield
    sys.modules.pop("bad_input_ops", None)


# --- what no TensorFlow is needed for: exit 2 or 5 ---


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("m.py:f", "m:f"),
        ("pkg/m.py::f", "pkg.m:f"),
        ("pkg.m.f", "pkg.m:f"),
        ("tf.nn.relu", "tensorflow.nn:relu"),
    ],
)
def test_a_function_that_is_written_as_elsewhere_says_how_it_is_written_here(command, spec, written, meant):
    done = command("validate", spec(f"op: a\nforward: {written}\ninputs: {{x: {{shape: [2]}}}}\n"))
    assert done.code == 2
    assert done.err.endswith(f"but got '{written}'. Did you mean '{meant}'?\n")


# --- what only a run finds: exit 3, or 1, and the other specs go on ---

TANH = "op: bad\nforward: bad_input_ops:f\ninputs: {x: {shape: [2, 3]}}\n"
WITH_GRADIENT = TANH + "gradient: bad_input_ops:g\n"
NUMPY = WITH_GRADIENT + "binding: py_func\noutputs: {y: {dtype: float64, shape: [4]}}\n"
IMPORT = "import numpy as np\nimport tensorflow as tf\n"
HELPED = "def helper(x):\n    raise ValueError('no square root')\ndef f(x):\n    return helper(x)\n"
CUSTOM = "@tf.custom_gradient\ndef f(x):\n    return x * x"
OVERRIDE = """\
def f(x):
    with tf.compat.v1.get_default_graph().gradient_override_map({'Square': 'NoSuch'}):
        return tf.square(x)
"""
CLASS = "class f:\n    def __init__(self, k): pass\n    def __call__(self, x): return x\n"


def f(returned, *arguments):
    """Return the text of a forward."""
    return f"def f({', '.join(('x', *arguments))}):\n    return {returned}\n"


def g(returned, *arguments):
    """Return the text of a tanh and of a gradient of it."""
    return f("tf.tanh(x)") + f"def g({', '.join(arguments or ('op', 'upstream'))}):\n    return {returned}\n"


# A spec, the code that it names, and what a run with it says.
RUNS = {
    "module missing": (
        TANH.replace("bad_input_ops:f", "no_such_module_at_all:f"),
        "",
        "ERROR GC301 import: forward: no module named 'no_such_module_at_all'.|Put the module beside",
    ),
    "attribute missing": (
        TANH.replace("ops:f", "ops:tangnt"),
        "def tangent(x): return x\n",
        "GC302 attribute: forward: 'bad_input_ops'|has no attribute 'tangnt'. Did you mean 'tangent'?",
    ),
    "forward raises": (
        TANH,
        HELPED,
        (
            "ERROR GC310 forward: the forward raised ValueError: no square root|bad_input_ops.py:6: in f|"
            "return helper(x)|bad_input_ops.py:4: in helper|raise ValueError('no square root')"
        ),
    ),
    "forward exits": (TANH, "def f(x):\n    raise SystemExit(0)\n", "ERROR GC310 forward: "),
    "gradient that is not finite": (
        WITH_GRADIENT,
        g("upstream * np.nan"),
        "MISMATCH|6 of 36 elements|analytic nan",
    ),
    "forward that is not finite": (
        TANH.replace("[2, 3]", "[2], value: [-1.0, 1.0]"),
        f("tf.math.log(x)"),
        "INCONCLUSIVE|isn't finite here",
    ),
    "forward of float32 with inputs of float64": (
        TANH,
        f("x * tf.constant(2.0)"),
        (
            "has type float32 that does not match type float64 of argument 'x'. Give each input the dtype "
            "that the function takes, such as float32; without one, a spec's input is float64."
        ),
    ),
    "forward with another signature": (
        TANH,
        f("tf.reduce_sum(x, axis)", "axis"),
        "missing 1 required positional argument: 'axis'. The spec's inputs are passed by position,",
    ),
    "class whose objects need an argument": (
        TANH,
        CLASS,
        (
            "build: bad_input_ops:f(**build) raised TypeError:|"
            "missing 1 required positional argument: 'k'. Write the arguments that make it under 'build'."
        ),
    ),
    "custom gradient without a gradient": (
        TANH,
        CUSTOM,
        (
            "the tf.custom_gradient at bad_input_ops.py:3 must return its result and a gradient function, "
            "(y, grad), but returned (SymbolicTensor)."
        ),
    ),
    "custom gradient that returns a tensor for its gradient": (
        TANH,
        CUSTOM + ", 2 * x\n",
        "(y, grad), but returned (SymbolicTensor, SymbolicTensor).",
    ),
    "custom gradient whose function takes no upstream": (
        TANH,
        CUSTOM + ", lambda: 2 * x\n",
        "takes 0 positional arguments but 1 was given. It is called with an upstream for each output",
    ),
    "gradient of arrays": (
        WITH_GRADIENT,
        g("upstream * 2 * x", "upstream", "x"),
        "It is called as (op, *upstream); for one of arrays|write 'gradient: {numpy: module:function}'.",
    ),
    "gradient of tensors taken for one of arrays": (
        TANH + "gradient: {numpy: 'bad_input_ops:g'}\n",
        g("upstream * op.inputs[0]"),
        "It is called as (*upstream, *inputs); for one that takes (op, *upstream), write 'gradient: m",
    ),
    "gradient with another signature": (
        WITH_GRADIENT,
        g("upstream", "upstream"),
        "g() takes 1 positional argument but 2 were given. It is called as (op, *upstream);",
    ),
    "NumPy forward of another shape than its output's": (
        NUMPY,
        g("upstream").replace("tf.tanh", "np.tanh"),
        "output 0 must have shape [4], by the spec's 'outputs' or by set_shape, but has [2, 3].",
    ),
    "nothing floating-point goes in": (
        TANH.replace("[2, 3]", "[2, 3], dtype: int32"),
        f("tf.cast(x, tf.float64)"),
        "only x (int32). Give one a dtype such as float64.",
    ),
    "gradient that is misspelt in an override": (
        TANH,
        OVERRIDE,
        "gradient_override_map names the gradient 'NoSuch' for op Square, and none is registered",
    ),
    "name of TensorFlow 1": (
        TANH,
        f("tf.log(x)"),
        "has no attribute 'log'. If it is a name of TensorFlow 1, write import tensorflow.compat.v1 as tf.",
    ),
    "module misspelt": (
        TANH.replace("bad_input_ops", "bad_inptu_ops"),
        f("x"),
        "no module named 'bad_inptu_ops'.|Did you mean 'bad_input_ops'?",
    ),
}


def joined(text):
    """A table's wrapped lines as one."""
    return " ".join(text.split())


@pytest.mark.on_change("module missing", "attribute missing", "forward exits", "gradient that is not finite")
@pytest.mark.parametrize("row", RUNS.values(), ids=RUNS)
def test_a_run_says_what_is_wrong_and_goes_on(command, spec, row):
    text, code, told = row
    bad, good = spec(text, IMPORT + code), spec(GOOD, name="good.yaml")
    done = command("run", bad, good)
    assert done.code == (1 if "MISMATCH" in told else 3)
    for part in told.split("|"):
        assert part in joined(done.out), done.out
    assert "good.yaml · good" in done.out
    assert "1 passed" in done.out.splitlines()[-1]
    assert "Traceback" not in done.out + done.err
    assert f"{OWN}/" not in done.out.replace(str(Path(__file__).parents[2]), "")


def test_a_missing_module_names_the_search_path(command, spec, tmp_path):
    done = command("run", spec(RUNS["module missing"][0]))
    assert "Looked in: . " in joined(done.out), done.out
    assert str(tmp_path) not in done.out


def test_what_is_wrong_with_several_cases_is_said_once(command, spec):
    text = "op: two\nforward: tensorflow:multiply\ninputs: {x: {shape: [2]}, y: {shape: [2]}}\n"
    done = command("show", spec(text + "dtypes: [float32, float64]\n"))
    assert done.err == (
        "two · case default · float32 and 1 more: two has several pairs: dy/dx, dy/dy. "
        "Name one: --pair dy/dx\n"
    )


def test_show_of_a_forward_that_raises(command, spec):
    done = command("show", spec(TANH, IMPORT + HELPED), "--pair", "dy/dx")
    assert (done.code, done.out) == (3, "")
    assert done.err.splitlines()[0] == "the forward raised ValueError: no square root"
    assert "bad_input_ops.py:4: in helper" in done.err
    assert "Traceback" not in done.err


NOISY = """
import sys, os
import tensorflow as tf
print("imported")
def f(x):
    print("traced")
    tf.print("ran")
    return tf.numpy_function(np_f, [x], x.dtype)
def np_f(x):
    print("NumPy ran")
    return x * 2
def g(op, upstream):
    print("gradient traced")
    return 2 * upstream
"""


def test_json_stays_json_when_the_users_code_prints(command, spec):
    done = command("run", spec(WITH_GRADIENT, NOISY), "--format", "json")
    assert done.code == 0
    assert json.loads(done.out)["summary"]["passed"] == 1
    for word in ("imported", "traced", "NumPy ran", "gradient traced"):
        assert word in done.err
