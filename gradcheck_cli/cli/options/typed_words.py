"""Reads the words that people type for specs, functions, commands and options as they know them elsewhere.

What isn't a spec, a command or an option is answered with the line to type.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradcheck_cli.errors import GradcheckError, UsageError
from gradcheck_cli.spec.words import words_of_others

if TYPE_CHECKING:
    from gradcheck_cli.spec.case import Case

_PYTHON_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def answer_option(option: str) -> str:
    """Return what to type instead of another tool's option; empty where nothing is known of it."""
    return next((f"Type {line}." for line in words_of_others("options", option)), "")


def answer_command(words: Sequence[str]) -> str:
    """Return the line to type for words that begin with no command; empty where nothing is known of them."""
    if words[0] == "help":
        return f"Type: gradcheck {shlex.join([*words[1:2], '--help'])}"
    for command in words_of_others("commands", words[0]):
        return f"Type: gradcheck {command} {shlex.join(words[1:])}".rstrip()
    target = target_of(words[0])
    if Path(words[0].partition("::")[0]).exists() and not target:
        return f"Type: gradcheck run {shlex.join(words)}"
    return _answer(words[0], target, "run") if target else ""


class NamedSpec(str):
    """A spec's path, from pytest's name of a test: `specs/f.yaml::op::case::pair`."""

    __slots__ = ("names",)

    names: tuple[str, ...]  # of the op, of its case and of the pair, as far as they are given

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Cross to another process as a path."""
        return str, (str(self),)


class SpecPath(click.Path):
    """A spec file or a folder of them; the names of a test below it are kept."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 (click's own)
        """Return the path; a word that is no spec is answered with the line to type."""
        path, *names = str(value).split("::")
        if names and Path(path).exists() and not path.endswith(".py"):
            spec = NamedSpec(path)
            spec.names = tuple(names)
            return spec
        # Only a path that exists, or is to be a spec's, is one; a package is, if there are specs in it.
        is_code = value.endswith(".py") or Path(value, "__init__.py").is_file()
        is_spec = value.endswith((".yaml", ".yml")) or (
            any(Path(value).rglob("*.y*ml")) if is_code else Path(value).exists()
        )
        command = "" if ctx is None or ctx.resilient_parsing else str(ctx.info_name)
        answer = "" if is_spec or not command else _answer(value, target_of(value), command)
        if answer:
            raise click.UsageError(answer, ctx)
        return super().convert(value, param, ctx)


def keep_named(cases: Sequence[Case], paths: Sequence[str]) -> tuple[Case, ...]:
    """Return the cases of specs; of one that is named as pytest names its tests, only those of that name.

    Raises:
        NoSpecsError: an op or a case has no such name.
    """
    if not any(isinstance(path, NamedSpec) for path in paths):
        return tuple(cases)
    from gradcheck_cli.running.selection import choose

    asked: list[Case] = []
    for path in paths:
        whole = Path(path).absolute()
        inside = [case for case in cases if Path(case.file).absolute().is_relative_to(whole)]
        if isinstance(path, NamedSpec):
            op, *rest = path.names
            inside = list(choose(inside, ops=(op,)))
            case_names = {name: case.name for case in inside for name in _test_names(case)}
            names = tuple(case_names.get(name, name) for name in rest[:1])
            inside = list(choose(inside, names=names))
        asked += inside
    chosen = set(map(id, asked))
    return tuple(case for case in cases if id(case) in chosen)


def _test_names(case: Case) -> Iterator[str]:
    """Yield the names that pytest may give a case: with its dtype and its mode."""
    for name in (case.name, f"{case.name}-{case.origin.variant}"):
        yield from (name, *(f"{name}-{mode}" for mode in case.running.modes))


def target_of(word: str) -> str:
    """Return the `MODULE:FUNCTION` that a word means, `MODULE:` for a whole module; empty for another word.

    Nothing is imported.
    """
    from gradcheck_cli.running.find_modules import find

    path, colon, name = word.replace("::", ":").partition(":")
    if path.endswith(".py") or (not colon and Path(path, "__init__.py").is_file()):
        return f"{_module_at(Path(path))}:{name}"
    if not _PYTHON_NAME.fullmatch(path):
        return ""
    if colon:
        return f"{path}:{name}" if _PYTHON_NAME.fullmatch(name) else ""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[:count])
        if (count > 1 or len(parts) > 1 or Path(f"{module}.py").exists()) and find(module, [str(Path.cwd())]):
            return f"{module}:{'.'.join(parts[count:])}"
    return ""


def _module_at(path: Path) -> str:
    """Return the name of the module in a file or a folder: from its package, else from the working folder."""
    path = path.absolute()
    root = path.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    if root == path.parent and Path.cwd() in root.parents:  # in no package: a folder may be one as well
        root = Path.cwd()
    return ".".join(path.with_suffix("").relative_to(root).parts)


def function_named(word: str) -> str:
    """Return the `MODULE:FUNCTION` that a word means.

    Raises:
        UsageError: it is a whole module, or none at all.
    """
    target = target_of(word)
    if target.endswith(":"):
        module = target[:-1]
        raise UsageError(
            f"{word} is a whole module. Type: gradcheck init --missing {module}, or: gradcheck init "
            f"{module}:FUNCTION"
        )
    if not target:
        is_type = word.isidentifier() and word[0].isupper()
        hint = f" For an op type, type: gradcheck init --op-type {word}" if is_type else ""
        raise UsageError(f"must be MODULE:FUNCTION, such as ops:huber, but got '{word}'.{hint}")
    return target


def _answer(word: str, target: str, command: str) -> str:
    """Return the line to type for a function, a module, an op or a case in place of a spec."""
    from gradcheck_cli.cli.options.configured import default_paths
    from gradcheck_cli.spec.load import load_cases

    cases: Sequence[Case] = ()
    with suppress(GradcheckError):  # specs with faults are for `validate`
        cases = load_cases(default_paths())

    def is_meant(case: Case) -> bool:
        targets = [function.target for function in (case.code.forward, case.code.gradient) if function]
        if target.endswith(":"):
            return any(each.startswith((target, f"{target[:-1]}.")) for each in targets)
        return case.op == word or target in targets

    meant = [case for case in cases if is_meant(case)]
    files = [*dict.fromkeys(case.origin.path for case in meant)]
    names = [] if target.endswith(":") else [*dict.fromkeys(case.op for case in meant)]
    if meant:
        options = [part for name in names for part in ("--op", name)]
        kind = "no spec, but has one" if target else "the name of an op"
        return f"{word} is {kind}. Type: gradcheck {command} {shlex.join([*files, *options])}"
    if not target:
        return ""
    line = f"init --missing {target[:-1]}" if target.endswith(":") else f"init {target}"
    return f"{word} is code, and gradcheck {command} takes specs. Write one: gradcheck {line}"
