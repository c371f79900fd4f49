"""Which gradients a module's text holds: decorators, calls, wrappers, in functions and factories too."""

import ast
import textwrap

import pytest

from gradcheck_cli.errors import UsageError
from gradcheck_cli.features.coverage.gradients_in_text import find_gradients, read_package


def found(text):
    return [
        (one.kind, one.name, one.registered)
        for one in find_gradients(ast.parse(textwrap.dedent(text)), "m", "m.py")
    ]


CASES = {
    "a decorator": (
        """
        @tf.custom_gradient
        def f(x): return x, g
        """,
        [("custom_gradient", "f", "")],
    ),
    "a bare name, and a library's wrapper with arguments": (
        """
        @custom_gradient
        def f(x): return x, g
        @tfp.math.custom_gradient(vjp_fwd=fwd, vjp_bwd=bwd)
        def g(x): return x
        @my_custom_gradient
        def h(x): return x
        """,
        [("custom_gradient", "f", ""), ("custom_gradient", "g", ""), ("custom_gradient", "h", "")],
    ),
    "another name for it, and a partial": (
        """
        from tensorflow import custom_gradient as cg
        vjp = tf.custom_gradient
        @cg
        def f(x): return x, g
        @vjp
        def h(x): return x, g
        @functools.partial(tfp.custom_gradient, vjp_fwd=a, vjp_bwd=b)
        def k(x): return x
        """,
        [("custom_gradient", "f", ""), ("custom_gradient", "h", ""), ("custom_gradient", "k", "")],
    ),
    "in a factory, a method and a class": (
        """
        def make(k):
            @tf.custom_gradient
            def inner(x): return x, g
            return inner
        class C:
            @staticmethod
            @tf.custom_gradient
            def m(x): return x, g
            def call(self, x):
                if self.k:
                    with scope():
                        @tf.custom_gradient
                        def deep(x): return x, g
        """,
        [
            ("custom_gradient", "make.<locals>.inner", ""),
            ("custom_gradient", "C.m", ""),
            ("custom_gradient", "C.call.<locals>.deep", ""),
        ],
    ),
    "calls": (
        """
        def plain(x): return x, g
        f = tf.custom_gradient(plain)
        def use(x):
            return tf.custom_gradient(lambda x: (x, g))(x)
        """,
        [("custom_gradient", "plain", ""), ("custom_gradient", "use.<locals>.line 5", "")],
    ),
    "registered, by decorator and by call": (
        """
        @tf.RegisterGradient("Mine")
        def grad(op, dy): return dy
        ops.RegisterGradient("Other")(other)
        """,
        [("RegisterGradient", "grad", "Mine"), ("RegisterGradient", "line 4", "Other")],
    ),
    "an override with TensorFlow's own gradient is one, with the module's own it isn't": (
        """
        @tf.RegisterGradient("Mine")
        def grad(op, dy): return dy
        def f(x):
            with g.gradient_override_map({"Square": "Mine"}): return tf.square(x)
        def h(x):
            with g.gradient_override_map({"Round": "Identity"}): return tf.round(x)
        """,
        [("RegisterGradient", "grad", "Mine"), ("gradient_override_map", "h.<locals>.line 7", "Identity")],
    ),
    "an override that is named elsewhere is one, at its line": (
        """
        MAPPING = {"Round": "Identity"}
        def f(x):
            with g.gradient_override_map(MAPPING): return tf.round(x)
        def h(x, mapping):
            with g.gradient_override_map(mapping): return tf.round(x)
        def n(x):
            with g.gradient_override_map({}): return tf.round(x)
        """,
        [
            ("gradient_override_map", "f.<locals>.line 4", ""),
            ("gradient_override_map", "h.<locals>.line 6", ""),
        ],
    ),
    "a py_func helper is registered once, and used where it is given a gradient": (
        """
        def py_func(f, inputs, types, grad=None):
            name = "Py%d" % random()
            tf.RegisterGradient(name)(grad)
            with g.gradient_override_map({"PyFunc": name}):
                return tf.py_func(f, inputs, types)
        def square(x):
            return py_func(np.square, [x], [tf.float32], grad=_square_grad)
        def _square_grad(op, dy): return dy
        def plain(x):
            return py_func(np.square, [x], [tf.float32], grad=None)
        """,
        [
            ("RegisterGradient", "py_func.<locals>.line 4", ""),
            ("py_func", "square.<locals>._square_grad", ""),
        ],
    ),
    "Defun": (
        """
        @function.Defun(tf.float32, python_grad_func=grad)
        def f(x): return x
        @function.Defun(tf.float32)
        def h(x): return x
        k = function.Defun(tf.float32, python_grad_func=grad)(body)
        """,
        [("Defun", "f", ""), ("Defun", "line 6", "")],
    ),
    "a wrapper that hands on, and what it makes itself, write none": (
        """
        def custom_gradient(fun):
            return tf.custom_gradient(f=fun)
        def custom_gradient(vjp_fwd):
            def wrapper(f):
                @tf.custom_gradient
                def wrapped(*args): return vjp_fwd(*args)
                return wrapped
            return wrapper
        """,
        [],
    ),
    "another framework's": (
        """
        @jax.custom_gradient
        def f(x): return x, g
        """,
        [],
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=list(CASES))
def test_what_is_found(text, expected):
    assert found(text) == expected


def test_a_package_with_modules_that_are_not_python(tmp_path):
    files = {
        "__init__.py": "",
        "ops.py": "@tf.custom_gradient\ndef f(x): return x, g\n",
        "deep/__init__.py": "f = tf.custom_gradient(lambda x: (x, g))\n",
        "broken.py": "custom_gradient = (\n",
        "text.py": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / "pkg" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pkg" / name).write_text(text)
    package = read_package("pkg", [str(tmp_path)])
    assert [one.target for one in package.finds] == ["pkg.deep:line 1", "pkg.ops:f"]
    assert package.unreadable == ("pkg.broken",)
    assert sorted(package.modules) == ["pkg", "pkg.broken", "pkg.deep", "pkg.ops", "pkg.text"]
    part = package.within([tmp_path / "pkg" / "ops.py"])
    assert ([one.target for one in part.finds], part.unreadable, list(part.modules)) == (
        ["pkg.ops:f"],
        (),
        ["pkg.ops"],
    )
    assert [one.target for one in read_package("pkg.ops", [str(tmp_path)]).finds] == ["pkg.ops:f"]


def test_no_such_package(tmp_path):
    with pytest.raises(UsageError, match="nowhere: there is no such package or module; looked in"):
        read_package("nowhere", [str(tmp_path)])
