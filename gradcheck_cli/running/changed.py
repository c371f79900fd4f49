"""Finds what git says has changed since a revision, and the cases that this may affect.

Which files a case depends on is read from what its modules import; nothing is imported for it.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import pkgutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import machinery
from importlib.util import resolve_name
from pathlib import Path

from gradcheck_cli.errors import UsageError
from gradcheck_cli.plain_files import MIB, is_installed, read_plain
from gradcheck_cli.spec.case import Case
from gradcheck_cli.spec.load import FOLDER_DEFAULTS


@dataclass(frozen=True)
class Dependencies:
    """What a case depends on."""

    # absolute paths, links resolved: the spec, modules, data files; also where a missing module would be,
    # since deleting a file is a change too
    files: frozenset[Path]
    # whether there may be unknown dependencies: a module isn't found, isn't Python, or imports a name that it
    # computes
    is_open: bool


@dataclass
class _Walk:
    folders: tuple[str, ...]
    files: set[Path] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    is_open: bool = False

    def visit(self, name: str, *, required: bool) -> None:
        """Add a module, its packages, and everything that these import."""
        waiting = [(name, required)]
        while waiting:
            name, required = waiting.pop()
            if name in self.seen:
                continue
            self.seen.add(name)
            parent = name.rpartition(".")[0]
            if parent:
                waiting.append((parent, required))  # importing a.b runs a's __init__.py
            spec = find(name, self.folders)
            self.files |= set(_candidates(name, self.folders))
            file = file_of(spec)
            if spec is None:
                self.is_open |= required
            elif file is not None and not is_installed(file):
                self.files.add(file)
                imported = _imports(file, name)
                self.is_open |= imported.is_open
                waiting += [(module_name, False) for module_name in imported.names]


def dependencies(case: Case) -> Dependencies:
    """Return what a case's verdict may depend on, within the project."""
    reference = case.reference and case.reference.function
    functions = [ref.target for ref in (case.code.forward, case.code.gradient, reference) if ref]
    classes = [target for argument in case.arguments for target in argument.form.targets]
    modules = tuple(target.partition(":")[0] for target in (*functions, *classes))
    module_files = _follow_modules(modules, (case.origin.folder, str(Path.cwd())))
    files = {Path(case.origin.path).resolve(), Path(case.origin.folder, FOLDER_DEFAULTS).resolve()}
    for tensor in case.tensors:
        if tensor.source.kind == "file":
            name = str(tensor.source.arguments.get("path", ""))
            files.add(Path(case.origin.folder, name).resolve())
    return Dependencies(module_files.files | files, module_files.is_open)


def clear_cache() -> None:
    """Drop what was read: files may have changed."""
    for cached in (_follow_modules, _imports, parse_file, finder):
        cached.cache_clear()


@lru_cache(maxsize=1024)
def _follow_modules(modules: tuple[str, ...], folders: tuple[str, ...]) -> Dependencies:
    walk = _Walk(folders)
    for name in modules:
        walk.visit(name, required=True)
    return Dependencies(frozenset(walk.files), walk.is_open)


def _candidates(name: str, folders: tuple[str, ...]) -> Iterator[Path]:
    """Yield where a module would be found in the project, whether it exists or not."""
    parent, _, last = name.rpartition(".")
    places = folders
    if parent:
        package = find(parent, folders)
        places = tuple((package and package.submodule_search_locations) or ())
    for location in places:
        folder = Path(location).resolve()
        if not is_installed(folder):
            yield folder / f"{last}.py"
            yield folder / last / "__init__.py"


@dataclass(frozen=True)
class _Imports:
    names: frozenset[str]
    is_open: bool


@lru_cache(maxsize=4096)
def _imports(file: Path, module: str) -> _Imports:
    """Return the modules that a file may import anywhere in it; for `from` a package, also its members."""
    if file.suffix != ".py":
        return _Imports(frozenset(), is_open=False)  # a compiled module: only the file itself can change
    tree = parse_file(file)
    if tree is None:
        return _Imports(frozenset(), is_open=True)
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    names: set[str] = set()
    is_open = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # it leads out of the package
                base = resolve_name("." * node.level + (node.module or ""), package)
                names |= {base, *_members(base, node, file)}
        elif isinstance(node, ast.Call) and _imports_by_call(node):
            target = node.args[0] if node.args else None
            if isinstance(target, ast.Constant) and isinstance(target.value, str):
                with suppress(ImportError):
                    names.add(resolve_name(target.value, package))
            else:
                is_open = True
    return _Imports(frozenset(names - {""}), is_open)


def _members(base: str, node: ast.ImportFrom, file: Path) -> set[str]:
    """Return what `from base import ...` may import beside base; for a star, all modules beside the file."""
    if all(alias.name != "*" for alias in node.names):
        return {f"{base}.{alias.name}" for alias in node.names}
    spec = find(base, (str(file.parent), str(Path.cwd())))
    places = (spec and spec.submodule_search_locations) or ()
    return {
        f"{base}.{module_file.stem}" for location in places for module_file in Path(location).glob("*.py")
    }


def _imports_by_call(node: ast.Call) -> bool:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in {"import_module", "__import__"}


_PATIENCE = 60  # seconds; git may wait for a lock or a network disk


def changed_cases(cases: Sequence[Case], revision: str) -> tuple[Case, ...]:
    """Return the cases whose spec has changed, or a module or data file that they depend on.

    Args:
        revision: git compares the working tree with the commit where this revision's history and ours
            diverged. Untracked files count as changed, ignored ones don't.

    Raises:
        UsageError: there is no git, no repository, or no such revision.
    """
    top, changed = _top(), changed_files(revision)
    return tuple(case for case in cases if _is_touched(case, changed, top.resolve()))


def _top() -> Path:
    return Path(_git("rev-parse", "--show-toplevel").rstrip("\n"))


def _is_touched(case: Case, changed: frozenset[Path], top: Path) -> bool:
    needed = dependencies(case)
    if needed.is_open or not Path(case.origin.path).resolve().is_relative_to(top):
        return True
    # A changed submodule appears as its folder.
    return any(file in changed or not changed.isdisjoint(file.parents) for file in needed.files)


def changed_files(revision: str) -> frozenset[Path]:
    """Return the files that differ from where a revision's history and ours diverged, including new ones.

    Raises:
        UsageError: there is no git, no repository, or no such revision.
    """
    top, base = _top(), _base(revision)
    names = _git("diff", "--name-only", "--no-renames", "-z", base, "--", folder=top)
    names += _git("ls-files", "--others", "--exclude-standard", "-z", folder=top)
    return frozenset((top / name).resolve() for name in names.split("\0") if name)


def _base(revision: str) -> str:
    """Return the commit where the revision's history and ours diverged: its later changes aren't ours."""
    if revision.startswith("-"):
        raise UsageError(f"--changed: '{revision}' is no revision.")
    try:
        commit = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()
    except UsageError:
        if revision == "HEAD" and not _git("rev-list", "--all", "--max-count=1"):
            return _git("hash-object", "-t", "tree", os.devnull).strip()  # no commit yet: everything is new
        hint = (
            f" To check what changed in it, write --changed=HEAD {revision}."
            if Path(revision).exists()
            else ""
        )
        raise UsageError(f"--changed: git knows no revision '{revision}'; is it fetched?{hint}") from None
    try:
        return _git("merge-base", commit, "HEAD").strip()
    except UsageError:  # a shallow clone, or unrelated histories: compare the two directly
        return commit


def _git(*arguments: str, folder: Path | None = None) -> str:
    command = ["git", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 (fixed commands; a revision is verified first)
            command, cwd=folder, capture_output=True, check=False, timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"--changed: git can't be run: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise UsageError(f"--changed: {said or 'git failed: ' + ' '.join(command)}")
    return done.stdout.decode(errors="surrogateescape")


LIMIT = 64 * MIB  # nobody writes a longer module


def find(name: str, folders: Sequence[str]) -> machinery.ModuleSpec | None:
    """Find a module as a spec's code would, without importing it or its packages; `None` if there is none."""
    top, *rest = name.split(".")
    spec = _find_in(folders, top)
    if spec is None:
        with suppress(ImportError, ValueError):  # ValueError: the script that runs has no spec
            spec = importlib.util.find_spec(top)  # for a top-level name, this imports nothing
    for submodule in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = _find_in(spec.submodule_search_locations, submodule)
    return spec


def _find_in(folders: Iterable[str], name: str) -> machinery.ModuleSpec | None:
    """Find a module or package in folders; otherwise all folders of that name, as a namespace package.

    Python's own finder for these requires their parent to be imported.
    """
    parts: list[str] = []
    for folder in folders:
        spec = finder(folder).find_spec(name)
        if spec is not None and spec.loader is not None:
            return spec
        parts += (spec and spec.submodule_search_locations) or ()
    if not parts:
        return None
    namespace = machinery.ModuleSpec(name, None, is_package=True)
    namespace.submodule_search_locations = parts
    return namespace


@lru_cache(maxsize=4096)
def finder(folder: str) -> machinery.FileFinder:
    """Return what finds modules in a folder; it is kept, and with it the folder's content."""
    return machinery.FileFinder(
        folder,
        (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
        (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
    )


def file_of(spec: machinery.ModuleSpec | None) -> Path | None:
    """Return the file of a module, or `None` for a built-in one or a folder without an __init__.py."""
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    return Path(spec.origin).resolve()


def modules_below(package: str, folders: Sequence[str]) -> tuple[str, ...]:
    """Return the dotted names of a package's modules and subpackages, sorted, without its `__main__`."""
    spec = find(package, folders)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    modules = []
    for module in pkgutil.iter_modules(places):
        name = f"{package}.{module.name}"
        if module.name != "__main__":
            modules += [name, *(modules_below(name, folders) if module.ispkg else ())]
    return tuple(sorted(modules))


@lru_cache(maxsize=4096)
def parse_file(file: Path) -> ast.Module | None:
    """Return a Python file's syntax tree; `None` if it isn't valid Python."""
    try:
        return ast.parse(read_plain(file, LIMIT))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
