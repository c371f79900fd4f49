"""gradcheck: checks custom TensorFlow gradients against numeric derivatives.

The library consists of `assert_gradients`, `check_function` and `check`, which return a `Report`, of
`render_report` and of `py_func`. Each loads what it needs when it is first used, so that the command line's
`--help` doesn't load it.
"""

from __future__ import annotations

from importlib import import_module

# Not imported: with `python -m`, a `typing.py` in the working folder would replace Python's own.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from gradcheck_cli.features.library.library import assert_gradients as assert_gradients
    from gradcheck_cli.features.library.library import check as check
    from gradcheck_cli.features.library.library import check_function as check_function
    from gradcheck_cli.reporting.report_text import render_report as render_report
    from gradcheck_cli.results import Report as Report
    from gradcheck_cli.tensorflow_backend.numpy_op import py_func as py_func

__all__ = ["Report", "__version__", "assert_gradients", "check", "check_function", "py_func", "render_report"]

__version__ = "0.1.0"


_LATE = {
    "assert_gradients": "gradcheck_cli.features.library.library",
    "check": "gradcheck_cli.features.library.library",
    "check_function": "gradcheck_cli.features.library.library",
    "py_func": "gradcheck_cli.tensorflow_backend.numpy_op",
    "render_report": "gradcheck_cli.reporting.report_text",
    "Report": "gradcheck_cli.results",
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; its functions are {', '.join(_LATE)}"
        )
    return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})
