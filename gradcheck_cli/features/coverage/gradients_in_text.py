"""Finds hand-written gradients of a package in the text of its modules; imports nothing."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradcheck_cli.errors import UsageError
from gradcheck_cli.plain_files import read_plain, short_path
from gradcheck_cli.running.find_modules import LIMIT, file_of, find, modules_below, parse_file

CUSTOM, REGISTERED, OVERRIDDEN, DEFUN, NUMPY, MODULE = (
    "custom_gradient",
    "RegisterGradient",
    "gradient_override_map",
    "Defun",
    "py_func",
    "module",
)
# The keywords under which Defun and helpers around py_func take a gradient function.
_GRADIENT_KEYWORDS = ("python_grad_func", "grad_func", "grad_fn", "grad", "gradient")
_NOT_TENSORFLOWS = ("jax", "torch")  # their decorators have the same name

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class GradientInText:
    """One gradient in the text."""

    module: str  # dotted name
    # the qualified name of the function that it belongs to; for a call, that of the function around it, and
    # the line
    name: str
    kind: str  # how it is made
    file: str  # the file, as `short_path` names it
    line: int  # of the function, or of the call
    # the lines that identify it in a run's records: decorators and `def`, or the call, with the `def` of the
    # function that the call names
    lines: frozenset[int]
    # the name under which it is registered; empty if there is none, or if it is computed
    registered: str = ""

    @property
    def target(self) -> str:
        """The name in specs and exceptions, `module:qualname`."""
        return f"{self.module}:{self.name}"


@dataclass(frozen=True)
class Package:
    """A package's text."""

    name: str  # its dotted name
    modules: dict[str, str]  # all of its modules, by dotted name, with their files as `short_path` names them
    paths: dict[str, Path]  # those files' full paths
    finds: tuple[GradientInText, ...]  # the gradients in them
    unreadable: tuple[str, ...]  # modules that aren't Python

    def within(self, files: Collection[Path]) -> Package:
        """Return the part of the package that lies in some files."""
        paths_within = {name: file for name, file in self.paths.items() if file in files}
        return Package(
            self.name,
            {name: self.modules[name] for name in paths_within},
            paths_within,
            tuple(find for find in self.finds if find.module in paths_within),
            tuple(name for name in self.unreadable if name in paths_within),
        )


def read_package(name: str, folders: Sequence[str]) -> Package:
    """Read a package, or a single module.

    Raises:
        UsageError: there is no such package.
    """
    spec = find(name, folders)
    if spec is None:
        raise UsageError(
            f"{name}: there is no such package or module; looked in {', '.join(folders)} and on "
            "Python's path. Give its dotted name, as an import statement has it."
        )
    paths = {}
    for module in (name, *modules_below(name, folders)):
        file = file_of(find(module, folders))
        if file is not None and file.suffix == ".py":
            paths[module] = file
    files = {module: short_path(str(file)) for module, file in paths.items()}
    finds: list[GradientInText] = []
    unreadable: list[str] = []
    for module, file in paths.items():
        if _may_hold_gradients(file):
            tree = parse_file(file)
            unreadable += [module] if tree is None else []
            finds += [] if tree is None else find_gradients(tree, module, files[module])
    return Package(name, files, paths, tuple(finds), tuple(unreadable))


def finds_in(package: str, folders: Sequence[str]) -> Sequence[GradientInText]:
    """Return the gradients in a package's text; see `hooks.find_gradients`."""
    return read_package(package, folders).finds


def _may_hold_gradients(file: Path) -> bool:
    """Whether a module's text contains one of the words; this takes a hundredth of the time to parse it."""
    try:
        text = read_plain(file, LIMIT)
    except OSError:
        return True
    return any(word.encode() in text for word in (CUSTOM, REGISTERED, OVERRIDDEN, DEFUN, NUMPY))


def find_gradients(tree: ast.Module, module: str, file: str) -> list[GradientInText]:
    """Return the gradients in a module's text, in its order."""
    reader = _Reader(tree, module, file)
    finds = [find for node in ast.walk(tree) for find in reader.finds_at(node)]
    registered = {gradient.registered for gradient in finds if gradient.kind == REGISTERED} - {""}
    # An override with a gradient that this module registers is no second gradient.
    return [
        gradient
        for gradient in sorted(finds, key=lambda gradient: (gradient.line, gradient.name))
        if gradient.kind != OVERRIDDEN or gradient.registered not in registered
    ]


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Return what names refer to: `from x import custom_gradient as cg`, `cg = tf.custom_gradient`."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            aliases |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute | ast.Name):
            aliases |= {
                target.id: _dotted_name(node.value) for target in node.targets if isinstance(target, ast.Name)
            }
    return aliases


def _dotted_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


class _Reader:
    """Finds the gradients that a node makes; nodes come from the outside in."""

    def __init__(self, tree: ast.Module, module: str, file: str) -> None:
        self._module, self._file, self._aliases = module, file, _aliases(tree)
        self._around = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._claimed: set[ast.AST] = set()  # nodes that belong to a gradient that was found

    def finds_at(self, node: ast.AST) -> Iterator[GradientInText]:
        """Yield the gradients of a function's decorators, or of a call."""
        if isinstance(node, Function):
            for decorator in node.decorator_list:
                kind, registered = self._decorated_by(decorator)
                if kind:
                    self._claimed.update(ast.walk(decorator))
                    # The wrapper may close over only the functions that a decorator is given.
                    arguments = (
                        [*decorator.args, *decorator.keywords] if isinstance(decorator, ast.Call) else []
                    )
                    functions = [
                        self._definition(inner, node) for own in arguments for inner in ast.walk(own)
                    ]
                    yield from self._find(node, node.name, kind, (node, *functions), registered)
        elif isinstance(node, ast.Call) and node not in self._claimed:
            yield from self._called(node)

    def _called(self, node: ast.Call) -> Iterator[GradientInText]:
        inner = node.func if isinstance(node.func, ast.Call) else node
        self._claimed.add(inner)
        last = self._last_name(inner.func)
        applied = node.args if inner is not node else []
        if last == CUSTOM and self._is_tensorflows(inner.func):
            named = [keyword.value for keyword in node.keywords if keyword.arg == "f"]
            gradients = applied[:1] or node.args[:1] or named
            if not (gradients and self._is_wrapper(gradients[0])):
                yield from self._find_call(node, CUSTOM, gradients)
        elif last == REGISTERED:
            yield from self._find_call(node, REGISTERED, applied[:1], _literal_text(inner.args))
        elif last == OVERRIDDEN:
            mapping = node.args[0] if node.args else None
            if mapping is not None and not isinstance(mapping, ast.Dict):  # runs show what it is
                yield from self._find_call(node, OVERRIDDEN)
            for value in mapping.values if isinstance(mapping, ast.Dict) else ():
                if not self._is_registered_around(value):
                    yield from self._find_call(node, OVERRIDDEN, registered=_literal_text([value]))
        elif last == DEFUN or last.endswith(NUMPY):
            gradients = [keyword.value for keyword in inner.keywords if keyword.arg in _GRADIENT_KEYWORDS]
            if gradients and not (isinstance(gradients[0], ast.Constant) and gradients[0].value is None):
                yield from self._find_call(node, DEFUN if last == DEFUN else NUMPY, gradients)

    def _is_registered_around(self, name: ast.expr) -> bool:
        """Whether a function around an override registers what it names, before or after it."""
        return any(
            isinstance(call, ast.Call)
            and self._last_name(call.func) == REGISTERED
            and call.args
            and ast.dump(call.args[0]) == ast.dump(name)
            for scope in self._scopes(name)[1:]
            for call in ast.walk(scope)
        )

    def _find_call(
        self, node: ast.Call, kind: str, functions: Sequence[ast.expr] = (), registered: str = ""
    ) -> Iterator[GradientInText]:
        """Yield a call, under the name of the first function that it is given, if that is defined around."""
        definition = self._definition(functions[0], node) if functions else None
        name = definition.name if definition is not None else f"line {node.lineno}"
        return self._find(node, name, kind, (definition,), registered)

    def _find(
        self,
        node: Function | ast.Call,
        name: str,
        kind: str,
        functions: Sequence[Function | None],
        registered: str,
    ) -> Iterator[GradientInText]:
        names = []
        for scope in self._scopes(node)[1:]:
            names += [scope.name, "<locals>"] if isinstance(scope, Function) else [scope.name]
        if CUSTOM in names:
            return  # inside a wrapper: whoever uses the wrapper writes the gradient
        lines = {
            line
            for function in functions
            if function
            for line in range(
                min(own.lineno for own in (function, *function.decorator_list)), function.lineno + 1
            )
        }
        if isinstance(node, ast.Call):
            lines |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        qualname = ".".join([*names, name])
        yield GradientInText(
            self._module, qualname, kind, self._file, node.lineno, frozenset(lines), registered
        )

    def _scopes(self, node: ast.AST) -> list[Any]:
        """Return the module, and the classes and functions in whose bodies a node is, outermost first."""
        scopes: list[Any] = []
        while node in self._around:
            inner, node = node, self._around[node]
            if isinstance(node, ast.Module | ast.ClassDef | Function) and inner in node.body:
                scopes.insert(0, node)
        return scopes

    def _definition(self, function: ast.AST, place: ast.AST) -> Function | None:
        """Return the definition around a place that a name refers to."""
        name = function.id if isinstance(function, ast.Name) else ""
        found = None
        for scope in self._scopes(place):
            for node in _statements_in(scope):
                found = node if isinstance(node, Function) and node.name == name else found
        return found

    def _decorated_by(self, decorator: ast.expr) -> tuple[str, str]:
        """Return the kind of gradient that a decorator makes, and the name that it registers; or nothing."""
        call = decorator if isinstance(decorator, ast.Call) else None
        function = decorator if call is None else call.func
        last = self._last_name(function)
        if call is not None and last == "partial" and call.args:
            function, last = call.args[0], self._last_name(call.args[0])
        if last.endswith(CUSTOM) and self._is_tensorflows(function):
            return CUSTOM, ""
        if call is not None and last == REGISTERED:
            return REGISTERED, _literal_text(call.args)
        is_defun = (
            call is not None
            and last == DEFUN
            and {*_GRADIENT_KEYWORDS} & {keyword.arg for keyword in call.keywords}
        )
        return DEFUN if is_defun else "", ""

    def _last_name(self, function: ast.expr) -> str:
        """Return the last part of a dotted name, in the spelling of its source."""
        dotted = _dotted_name(function)
        return self._aliases.get(dotted, dotted).rpartition(".")[2]

    def _is_tensorflows(self, function: ast.expr) -> bool:
        return _dotted_name(function).partition(".")[0] not in _NOT_TENSORFLOWS

    def _is_wrapper(self, argument: ast.expr) -> bool:
        """Whether a call in a wrapper of the same name passes on its parameter: that writes no gradient."""
        scope = self._scopes(argument)[-1]
        if not (isinstance(scope, Function) and isinstance(argument, ast.Name)):
            return False
        arguments = scope.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        return scope.name.endswith(CUSTOM) and argument.id in {each.arg for each in named}


def _statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a scope, including those under `if` and `with`, but not a function's own."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, Function | ast.ClassDef | ast.Lambda):
            yield from _statements_in(child)


def _literal_text(arguments: Sequence[ast.expr]) -> str:
    first = arguments[0] if arguments else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
