"""Finds hand-written gradients of a package in the text of its modules; imports nothing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
    finds: list[GradientInText] = []
    unreadable = []
    for module, file in paths.items():
        if not _may_hold_gradients(file):
            continue
        tree = parse_file(file)
        if tree is None:
            unreadable.append(module)
        else:
            finds += find_gradients(tree, module, short_path(str(file)))
    files = {module: short_path(str(file)) for module, file in paths.items()}
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
    reader = _Reader(module, file, _aliases(tree))
    reader.visit(tree)
    registered = {gradient.registered for gradient in reader.finds if gradient.kind == REGISTERED} - {""}
    # An override with a gradient that this module registers is no second gradient.
    return [
        gradient
        for gradient in sorted(reader.finds, key=lambda gradient: (gradient.line, gradient.name))
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


@dataclass
class _Scope:
    """A function or a class around the node that is visited."""

    name: str
    node: ast.AST
    functions: dict[str, Function] = field(default_factory=dict)  # by name, defined in it
    parameters: frozenset[str] = frozenset()


class _Reader(ast.NodeVisitor):
    """Walks a module and collects its gradients."""

    def __init__(self, module: str, file: str, aliases: dict[str, str]) -> None:
        self.finds: list[GradientInText] = []
        self._module, self._file, self._aliases = module, file, aliases
        self._scopes: list[_Scope] = []
        self._claimed: set[ast.AST] = set()  # nodes that belong to a gradient that was found
        self._registering: defaultdict[int, set[str]] = defaultdict(set)  # by scope, the names as written

    def visit_Module(self, node: ast.Module) -> None:
        self._visit_scope(_Scope("", node, _functions_in(node)), node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._visit_scope(_Scope(node.name, node, _functions_in(node)), node.body)

    def visit_FunctionDef(self, node: Function) -> None:
        for decorator in node.decorator_list:
            kind, registered = self._decorated_by(decorator)
            if kind:
                self._claimed.update(ast.walk(decorator))
                lines = {*_header_lines(node), *self._headers_of_arguments(decorator)}
                self._add(self._qualname(node.name), kind, node.lineno, lines, registered)
            else:
                self.visit(decorator)
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters = frozenset(argument.arg for argument in named)
        for default in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
            self.visit(default)
        self._visit_scope(_Scope(node.name, node, _functions_in(node), parameters), node.body)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 (as NodeVisitor looks it up)

    def _headers_of_arguments(self, decorator: ast.expr) -> Iterator[int]:
        """Yield the lines of functions that a decorator is given: its wrapper may close over only these."""
        if not isinstance(decorator, ast.Call):
            return
        arguments = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
        for name in (node for value in arguments for node in ast.walk(value) if isinstance(node, ast.Name)):
            definition = self._definition_of(name)
            if definition is not None:
                yield from _header_lines(definition)

    def _visit_scope(self, scope: _Scope, body: Sequence[ast.stmt]) -> None:
        self._scopes.append(scope)
        # A name is registered before or after the override that uses it.
        self._registering[id(scope.node)] = {
            ast.dump(call.args[0])
            for call in ast.walk(scope.node)
            if isinstance(call, ast.Call) and call.args and self._last_name(call.func) == REGISTERED
        }
        for statement in body:
            self.visit(statement)
        self._scopes.pop()

    def visit_Call(self, node: ast.Call) -> None:
        if node not in self._claimed:
            self._call(node)
        self.generic_visit(node)

    def _call(self, node: ast.Call) -> None:
        inner = node.func if isinstance(node.func, ast.Call) else node
        last = self._last_name(inner.func)
        applied = node.args if inner is not node else []
        lines = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if last == CUSTOM and self._is_tensorflows(inner.func):
            gradients = (
                applied[:1]
                or node.args[:1]
                or [keyword.value for keyword in node.keywords if keyword.arg == "f"]
            )
            if not (gradients and self._is_wrapper(gradients[0])):
                self._add_call(node, CUSTOM, lines, gradients)
        elif last == REGISTERED:
            self._add_call(node, REGISTERED, lines, applied[:1], _literal_text(inner.args))
        elif last == OVERRIDDEN:
            self._add_overrides(node, lines)
        elif last == DEFUN or last.endswith(NUMPY):
            gradients = [keyword.value for keyword in inner.keywords if keyword.arg in _GRADIENT_KEYWORDS]
            if gradients and not (isinstance(gradients[0], ast.Constant) and gradients[0].value is None):
                self._add_call(node, DEFUN if last == DEFUN else NUMPY, lines, gradients)
        self._claimed.add(inner)

    def _add_overrides(self, node: ast.Call, lines: set[int]) -> None:
        """Add an override as a separate gradient, unless the function around it registers what it names."""
        mapping = node.args[0] if node.args else None
        if mapping is not None and not isinstance(mapping, ast.Dict):  # named elsewhere: runs show what it is
            self._add_call(node, OVERRIDDEN, lines, ())
        for value in mapping.values if isinstance(mapping, ast.Dict) else ():
            if not any(ast.dump(value) in self._registering[id(scope.node)] for scope in self._scopes[1:]):
                self._add_call(node, OVERRIDDEN, lines, (), _literal_text([value]))

    def _add_call(
        self, node: ast.Call, kind: str, lines: set[int], functions: Sequence[ast.expr], registered: str = ""
    ) -> None:
        """Add a call, under the name of the first function that it is given if that is defined around it."""
        definition = self._definition_of(functions[0]) if functions else None
        if definition is not None:
            lines = lines | set(_header_lines(definition))
        stem = definition.name if definition is not None else f"line {node.lineno}"
        self._add(self._qualname(stem), kind, node.lineno, lines, registered)

    def _add(self, name: str, kind: str, line: int, lines: set[int], registered: str) -> None:
        if any(scope.name == CUSTOM for scope in self._scopes):
            return  # inside a wrapper: whoever uses the wrapper writes the gradient
        self.finds.append(
            GradientInText(self._module, name, kind, self._file, line, frozenset(lines), registered)
        )

    def _decorated_by(self, decorator: ast.expr) -> tuple[str, str]:
        """Return the kind of gradient that a decorator makes, and the name that it registers; or nothing."""
        call = decorator if isinstance(decorator, ast.Call) else None
        function = decorator if call is None else call.func
        last = self._last_name(function)
        if call is not None and last == "partial" and call.args:
            function, last = call.args[0], self._last_name(call.args[0])
        if last.endswith(CUSTOM) and self._is_tensorflows(function):
            return CUSTOM, ""
        if call is None:
            return "", ""
        if last == REGISTERED:
            return REGISTERED, _literal_text(call.args)
        if last == DEFUN and any(keyword.arg in _GRADIENT_KEYWORDS for keyword in call.keywords):
            return DEFUN, ""
        return "", ""

    def _last_name(self, function: ast.expr) -> str:
        """Return the last part of a dotted name, in the spelling of its source."""
        dotted = _dotted_name(function)
        return self._aliases.get(dotted, dotted).rpartition(".")[2]

    def _is_tensorflows(self, function: ast.expr) -> bool:
        return _dotted_name(function).partition(".")[0] not in _NOT_TENSORFLOWS

    def _is_wrapper(self, argument: ast.expr) -> bool:
        """Whether a call in a wrapper of the same name passes on its parameter: that writes no gradient."""
        name, scope = argument.id if isinstance(argument, ast.Name) else "", self._scopes[-1]
        return name in scope.parameters and scope.name.endswith(CUSTOM)

    def _definition_of(self, function: ast.expr) -> Function | None:
        name = function.id if isinstance(function, ast.Name) else ""
        definitions = (scope.functions.get(name) for scope in reversed(self._scopes))
        return next((definition for definition in definitions if definition is not None), None)

    def _qualname(self, name: str) -> str:
        parts = []
        for scope in self._scopes[1:]:
            parts += [scope.name, *(["<locals>"] if isinstance(scope.node, Function) else [])]
        return ".".join([*parts, name])


def _functions_in(node: ast.AST) -> dict[str, Function]:
    return {
        statement.name: statement for statement in _statements_in(node) if isinstance(statement, Function)
    }


def _statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a scope, including those under `if` and `with`, but not a function's own."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, Function | ast.ClassDef | ast.Lambda):
            yield from _statements_in(child)


def _header_lines(function: Function) -> range:
    return range(
        min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)]),
        function.lineno + 1,
    )


def _literal_text(arguments: Sequence[ast.expr]) -> str:
    first = arguments[0] if arguments else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
