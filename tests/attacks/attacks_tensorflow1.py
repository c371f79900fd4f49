"""Code that turns TensorFlow 2's behaviour off: its right gradients pass, its wrong ones are found."""

import re
from pathlib import Path

from attacking import Attack

_NAMES = re.findall(
    r"^    def ([a-z]\w+)\(x\):",
    Path(__file__).with_name("tensorflow1_functions.py").read_text(encoding="utf-8"),
    re.MULTILINE,
)
_INNER = {"square", "cube", "cube_python", "without_gradient"}  # what those functions are made of
_X = {"x": {"shape": [3], "dtype": "float32", "uniform": {"low": 0.5, "high": 2}}}


def _of(word: str, name: str, **keys: object) -> Attack:
    return Attack(f"{word}_{name}", word, _X, f"tensorflow1_functions:{word}_{name}", keys=keys)


_SESSION = {
    "forward": "tensorflow1_functions:in_session",
    "keys": {"binding": "py_func", "outputs": {"y": {"shape": [3], "dtype": "float32"}}},
}
ATTACKS = (
    *[_of(word, name) for word in ("right", "wrong") for name in _NAMES if name not in _INNER],
    _of("right", "defun_without_gradient"),
    Attack("session", "right", _X, gradient="tensorflow1_functions:right_in_session_grad", **_SESSION),
    Attack("wrong_session", "wrong", _X, gradient="tensorflow1_functions:wrong_in_session_grad", **_SESSION),
    Attack("placeholder", "not green", _X, "tensorflow1_functions:on_a_placeholder"),
    Attack("beside", "right", _X, "tensorflow:square", keys={"modes": ["graph", "eager"]}),
)
