"""Code that turns TensorFlow 2's behaviour off: its right gradients pass, its wrong ones are found."""

import re
from pathlib import Path

from tests.support.row import Row, marked

_NAMES = re.findall(
    r"^    def ([a-z]\w+)\(x\):",
    (Path(__file__).parents[1] / "support" / "tensorflow1_functions.py").read_text(encoding="utf-8"),
    re.MULTILINE,
)
_INNER = {"square", "cube", "cube_python", "without_gradient"}  # what those functions are made of
_X = {"x": {"shape": [3], "dtype": "float32", "uniform": {"low": 0.5, "high": 2}}}


def _of(word: str, name: str, **keys: object) -> Row:
    return Row(
        f"{word}_{name}", f"tests.support.tensorflow1_functions:{word}_{name}", None, _X, word, keys=keys
    )


_FUNCTIONS = "tests.support.tensorflow1_functions"
_SESSION = {"binding": "py_func", "outputs": {"y": {"shape": [3], "dtype": "float32"}}}
ROWS = marked(
    (
        *[_of(word, name) for word in ("right", "wrong") for name in _NAMES if name not in _INNER],
        _of("right", "defun_without_gradient"),
        Row(
            "session",
            f"{_FUNCTIONS}:in_session",
            f"{_FUNCTIONS}:right_in_session_grad",
            _X,
            "right",
            keys=_SESSION,
        ),
        Row(
            "wrong_session",
            f"{_FUNCTIONS}:in_session",
            f"{_FUNCTIONS}:wrong_in_session_grad",
            _X,
            "wrong",
            keys=_SESSION,
        ),
        Row("placeholder", "tests.support.tensorflow1_functions:on_a_placeholder", None, _X, "not green"),
        Row("beside", "tensorflow:square", None, _X, "right", keys={"modes": ["graph", "eager"]}),
    ),
    "beside",
    "placeholder",
    "right_by_the_graph_it_is_traced_in",
    "right_defun",
    "right_with_a_drawn_variable",
    "right_with_the_modules_tensor",
    "wrong_with_a_drawn_variable",
    "wrong_with_the_modules_tensor",
)
