"""Which functions have a custom gradient, which registered gradients ran, and where gradients are written.

Call `running.session.start_tensorflow` before importing this.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gradcheck_cli.checking.ops.operation import OpPlace
from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.plain_files import is_installed, short_path
from gradcheck_cli.spec.case import CodeUnderTest
from gradcheck_cli.tensorflow_backend import graph_path, op_types
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs

_DEEPEST = 10  # decorators around one function


def gradients() -> dict[str, Any | None]:
    """Return the registered gradient functions by name; `None` where "not differentiable" is registered."""
    return {name: private_graphs.registered_gradient(name) for name in private_gradients.names_of_gradients()}


def has_custom_gradient(function: object) -> bool:
    """Whether calling a function goes through what `tf.custom_gradient` made of it."""
    return private_gradients.custom_gradient_under(function) is not None


@contextlib.contextmanager
def note_gradients() -> Iterator[private_gradients.GradientLog]:
    """Note the hand-written gradients that are made, and those that run, in the block."""
    log = private_gradients.GradientLog()
    with private_gradients.note_sites(log):
        yield log


def where(function: Any) -> tuple[str, str, int]:
    """Return a function's `module:qualname`, file and line; if decorated, the innermost's.

    The line is 0 and the file empty where there is no Python code.
    """
    inner = innermost(function)
    name = private_gradients.name_of(inner)
    call = inspect.getattr_static(type(inner), "__call__", None)  # for an object that is callable
    code = getattr(inner, "__code__", None) or getattr(call, "__code__", None)
    if code is None:
        return name, "", 0
    return name, short_path(code.co_filename), code.co_firstlineno


def innermost(function: Any) -> Any:
    """Return the function below decorators, partial applications and bound methods."""
    inner = function
    for _ in range(_DEEPEST):
        inner = inspect.unwrap(inner)
        inner = getattr(inner, "func", inner)  # functools.partial
        inner = getattr(inner, "__func__", inner)  # a bound method
        decorated = _decorated_by(inner)
        if decorated is None:
            break
        inner = decorated
    return inner


def _decorated_by(wrapper: Any) -> Any | None:
    """Return the function that a decorator without `functools.wraps` decorates; `None` for other functions.

    It is an argument of the function that made the wrapper, and takes the same arguments as the wrapper. A
    function that is passed to a factory of gradients, and that the gradient calls, takes others.
    """
    code = getattr(wrapper, "__code__", None)
    *makers, _ = getattr(wrapper, "__qualname__", "").split(".<locals>.")
    maker = _code_of(sys.modules.get(str(getattr(wrapper, "__module__", ""))), makers)
    if code is None or maker is None:
        return None
    maker_arguments = maker.co_varnames[: maker.co_argcount + maker.co_kwonlyargcount]
    with contextlib.suppress(ValueError):  # a cell that is still empty
        for name, value in private_graphs.closure_of(wrapper).items():
            inside = getattr(value, "__code__", None)
            if name not in maker_arguments or inside is None:
                continue
            if code.co_flags & inspect.CO_VARARGS or _arguments(inside) == _arguments(code):
                return value
    return None


def _arguments(code: types.CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount]


def _code_of(module: Any, path: Sequence[str]) -> types.CodeType | None:
    """Return the code of a function by its name in a module, or inside other functions."""
    if module is None or not path:
        return None
    value: Any = module
    for attribute in path[0].split("."):
        value = getattr(value, attribute, None)
    code = getattr(inspect.unwrap(value), "__code__", None) if value is not None else None
    for name in path[1:]:
        inner = () if code is None else code.co_consts
        code = next(
            (
                constant
                for constant in inner
                if isinstance(constant, types.CodeType) and constant.co_name == name
            ),
            None,
        )
    return code


def _covered_types(code: CodeUnderTest) -> tuple[str, ...]:
    """Return the op types that a case covers: those that its spec names, and a raw op's own.

    A raw op whose type has no gradient function, or is registered as not differentiable, covers nothing.
    """
    own = str(code.op_type) if code.is_raw_op else ""
    if own and own not in code.covers and private_graphs.has_gradient(own):
        return (own, *code.covers)
    return code.covers


def require_seen(
    code: CodeUnderTest,
    seen: Mapping[str, int],
    look_inside: Callable[[], Mapping[str, int]],
    *,
    is_vjp: bool = False,
) -> Mapping[str, int]:
    """Return which gradient functions were seen, with the number of calls.

    Args:
        look_inside: returns what is seen if the functions that the forward calls are differentiated anew.
            It is called only if something is missing, as it costs another trace.
        is_vjp: whether the case is another one's vjp: the spec says nothing about the gradients that run
            there.

    Raises:
        CaseFailedError: of kind "covers": the gradient of an op type that the case covers wasn't seen.
    """
    wanted = () if is_vjp else _covered_types(code)
    if not all(op_type in seen for op_type in wanted):
        seen = {**look_inside(), **seen}
    missing = [op_type for op_type in wanted if op_type not in seen]
    if missing:
        raise CaseFailedError("covers", _missing_message(missing, seen))
    return dict(sorted(seen.items()))


def _missing_message(missing: list[str], seen: Mapping[str, int]) -> str:
    for op_type in missing:
        if not private_graphs.is_registered(op_type):
            is_known = private_graphs.op_def(op_type) is not None
            return (
                f"{op_type} has no gradient function in TensorFlow's registry."
                if is_known
                else op_types.describe_unknown(op_type)
            )
        if not private_graphs.has_gradient(op_type):
            return f"{op_type} is registered as not differentiable: it has no gradient to be seen."
    seen_text = f"those seen were {', '.join(sorted(seen))}" if seen else "none was seen"
    return (
        f"the registered gradient of {', '.join(missing)} must be seen to run in the backward pass, but "
        f"wasn't; {seen_text}. Let the forward use the op, without another gradient in its place, between a "
        "differentiable input and an output, or correct covers."
    )


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def place_of(op: Any) -> OpPlace:
    """Return an op's name and its gradient function's place; for an op with a body, also those inside."""
    functions = [private_gradients.overriding_function(name) for name in dict.fromkeys(_inner_overrides(op))]
    inside = tuple(dict.fromkeys(_where(function) for function in functions if function is not None))
    function = private_gradients.gradient_function(op)
    if function is None:
        return OpPlace(op.name, op.type, inside=inside)
    draws = next((node.op for node in _forward_nodes(op) if _DRAW.search(node.op)), "")
    return OpPlace(op.name, op.type, *_where(function), inside=inside, draws=draws)


_DRAW = re.compile("Random(?!Get)|TruncatedNormal|Multinomial")


def _forward_nodes(op: Any) -> Iterator[Any]:
    """Yield the nodes of a custom gradient's forward, those in bodies included."""
    unit = private_graphs.custom_gradient_of(op)
    if unit is not None:
        results = list(op.inputs)[: unit.results]
        for inner_op in graph_path.ops_between(list(op.inputs)[unit.results :], results):
            yield inner_op.node_def
            yield from graph_path.inner_nodes(inner_op)


def _inner_overrides(op: Any) -> list[str]:
    """Return the names of the overrides in the body of a loop, branch or call, or in what is recomputed."""
    unit = private_graphs.custom_gradient_of(op)
    if unit is not None and not private_graphs.custom_gradient_results(op):  # tf.recompute_grad
        nodes = list(_forward_nodes(op))
    elif private_gradients.has_own_gradient(op):  # it skips everything inside
        nodes = []
    else:
        nodes = list(graph_path.inner_nodes(op))
    return [name for node in nodes if (name := private_graphs.override_of(node))]


def _where(function: Any) -> tuple[str, str, int]:
    """Return a gradient function's name, file and line; the file is empty if it isn't Python code."""
    function = innermost(private_graphs.users_function(function))
    name, file, line = where(function)
    code = getattr(function, "__code__", None)
    generated = private_gradients.source_place(code.co_filename, line) if code is not None else None
    if generated is not None:
        file, line = short_path(generated[0]), generated[1]
    return name.partition(":")[2], file, line


def source_of(code: CodeUnderTest) -> str:
    """Return `path:line` of the function that contains a case's gradient.

    That is the spec's `gradient`; or the function that forward returns as its gradient, if
    `tf.custom_gradient` decorates forward or a function inside it; or else forward.

    It is relative to the working directory, and empty for an op type alone, for code of an installed package,
    and where the module wasn't imported, as nothing is imported here.
    """
    reference = code.gradient or code.forward
    module, _, attribute = (reference.target if reference else "").partition(":")
    value: Any = sys.modules.get(module)
    for name in attribute.split("."):
        value = getattr(value, name, None)
    if value is None:
        return ""
    value = innermost(value)
    value = value if inspect.isclass(value) or inspect.isroutine(value) else type(value)
    try:
        file = Path(inspect.getsourcefile(value) or "")
        lines, index = inspect.findsource(value)
    except (OSError, TypeError):  # compiled code, or code without a file
        return ""
    if not file.is_file() or is_installed(file.resolve()):
        return ""
    return f"{os.path.relpath(file)}:{_line(lines, index + 1, finds_gradient=code.gradient is None)}"


def _line(lines: Sequence[str], first: int, *, finds_gradient: bool) -> int:
    """Return the 1-based line of a definition, or of the gradient of a custom gradient inside it."""
    for node in ast.walk(_parse("".join(lines))):
        if isinstance(node, _Definition):
            begins = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if begins == first:
                return ((_gradient_in(node) if finds_gradient else None) or node).lineno
    return first  # a lambda


@lru_cache(maxsize=64)
def _parse(text: str) -> ast.Module:
    return ast.parse(text)


def _gradient_in(node: _Definition) -> _Function | None:
    """Return the function that a function under `tf.custom_gradient` returns as its gradient."""
    for inner in ast.walk(node):
        if isinstance(inner, _Function) and any(
            _is_custom_gradient(decorator) for decorator in inner.decorator_list
        ):
            return _returned_gradient(inner) or inner
    return None


def _is_custom_gradient(decorator: ast.expr) -> bool:
    name = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
    return name == "custom_gradient"


def _returned_gradient(function: _Function) -> _Function | None:
    """Return the local function that is returned second."""
    names = {
        node.value.elts[1].id
        for node in ast.walk(function)
        if isinstance(node, ast.Return)
        and isinstance(node.value, ast.Tuple)
        and len(node.value.elts) == 2  # noqa: PLR2004 (outputs, gradient)
        and isinstance(node.value.elts[1], ast.Name)
    }
    local = [node for node in ast.walk(function) if isinstance(node, _Function) and node.name in names]
    return local[-1] if local else None
