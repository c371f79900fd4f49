"""Each mend of the reports makes the program of its page print what the page expects."""

import importlib
import inspect
import io
import textwrap
from contextlib import redirect_stdout

import pytest

from gradcheck_cli.running.session import start_tensorflow
from tests.audit.causes import causes
from tests.audit.reports import REQUESTS

start_tensorflow()
pytestmark = pytest.mark.once  # lines of TensorFlow, Keras and TensorFlow Probability as they are installed
CAUSES = {cause.path.stem: cause for cause in causes()}


def test_there_are_ten_and_each_has_a_page():
    assert len(REQUESTS) == 10
    assert {request.cause for request in REQUESTS} <= CAUSES.keys()
    assert all(CAUSES[request.cause].program for request in REQUESTS)


@pytest.mark.parametrize("request_", [one for one in REQUESTS if one.old], ids=lambda one: one.cause)
def test_a_mend_mends(request_, monkeypatch):
    module_name, _, qualified = request_.target.partition(":")
    pytest.importorskip(module_name.partition(".")[0])
    module = importlib.import_module(module_name)
    *owner, name = qualified.split(".")
    holder = getattr(module, owner[0]) if owner else module
    function = inspect.unwrap(getattr(holder, name))
    source = inspect.getsource(function)
    assert request_.old in source
    source = textwrap.dedent(source.replace(request_.old, request_.new))
    code = "from __future__ import annotations\n" + source[source.index("def ") :]
    scope = dict(vars(module))
    exec(compile(code, "<mend>", "exec"), scope)  # noqa: S102 (the library's own function, a line changed)
    monkeypatch.setattr(function, "__code__", scope[name].__code__)  # in place: others hold the function
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(CAUSES[request_.cause].program, {"__name__": "page"})  # noqa: S102 (a program of our own)
    # What follows a comma is in words.
    assert printed.getvalue().startswith(CAUSES[request_.cause].expected.partition(",")[0])
