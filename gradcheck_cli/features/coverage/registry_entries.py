"""The entries of TensorFlow's gradient registry, and functions with a custom gradient: what `list` shows."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from gradcheck_cli.errors import UsageError
from gradcheck_cli.tensorflow_backend import frames, op_types, registry, users_code

# Packages whose custom gradients aren't the user's, though an import may load more of them.
_NOT_THE_USERS = ("tensorflow", "keras", "tf_keras", "gradcheck_cli")


@dataclass(frozen=True)
class GradientEntry:
    """One op type or one function with a custom gradient."""

    name: str  # the op type; for a function with a custom gradient, `module:name`, as a spec names it
    # "gradient", "not differentiable" (registered as such), "none" (an op type that nobody registered
    # anything for: TensorFlow raises LookupError), or "custom_gradient"
    status: str
    function: str = ""  # `module:name` of the gradient function, or of the function that carries the gradient
    # where that function is defined, relative to `site-packages` or the working directory if it lies in one
    # of them; empty if there is no Python function
    file: str = ""
    line: int = 0  # its 1-based line; 0 if there is none
    origin: str = "tensorflow"  # the module after `--import` that registered it; "tensorflow" otherwise


def read_gradients(modules: Sequence[str] = ()) -> tuple[GradientEntry, ...]:
    """Read the registry, then import modules and read what each of them adds.

    Returns:
        Every op type that TensorFlow knows and every registered name, sorted; then, for each module, what its
        import registered, and its functions with a custom gradient.

    Raises:
        UsageError: a module can't be imported.
    """
    registered = registry.gradients()
    entries = [_entry_of(*entry) for entry in registered.items()]
    entries += [GradientEntry(name, "none") for name in op_types.every_op_type() - registered.keys()]
    entries.sort(key=lambda entry: (entry.name.lower(), entry.name))
    seen: set[int] = set()
    for name in modules:
        before = set(sys.modules)
        module = _import(name)
        earlier, registered = registered, registry.gradients()
        added = sorted(registered.keys() - earlier.keys())
        new = {entry: _entry_of(entry, registered[entry], origin=name) for entry in added}
        # The status of an op type of a library that the module has loaded was "none" until now.
        entries = [entry for entry in entries if entry.name not in new]
        entries += new.values()
        loaded = [module, *(sys.modules[other] for other in sorted(set(sys.modules) - before))]
        entries += _custom_gradients(loaded, name, seen)
    return tuple(entries)


def _entry_of(name: str, function: object, origin: str = "tensorflow") -> GradientEntry:
    if function is None:
        return GradientEntry(name, "not differentiable", origin=origin)
    return GradientEntry(name, "gradient", *registry.where(function), origin)


def _import(name: str) -> ModuleType:
    # As for specs: code in the working directory is importable, though `gradcheck` is a script elsewhere.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return users_code.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script without a `__main__` guard may exit
        reason = frames.first_line(error)
        raise UsageError(
            f"--import {name}: can't be imported: {reason}. Searched: {', '.join(sys.path[:5])}"
        ) from error


def _custom_gradients(modules: Iterable[ModuleType], origin: str, seen: set[int]) -> list[GradientEntry]:
    """Find functions with a custom gradient in modules and their classes, each under its first name."""
    entries = []
    for module in modules:
        if module.__name__.partition(".")[0] in _NOT_THE_USERS:
            continue
        for path, value in _attributes(module):
            if id(value) in seen or not registry.has_custom_gradient(value):
                continue
            seen.add(id(value))
            owner = sys.modules.get(str(getattr(value, "__module__", "")))
            # An attribute imported under another name has that name only here.
            home = owner if owner is not None and hasattr(owner, path.partition(".")[0]) else module
            target = f"{home.__name__}:{path}"
            entries.append(GradientEntry(target, "custom_gradient", *registry.where(value), origin))
    return sorted(entries, key=lambda entry: (entry.file, entry.line, entry.name))


def _attributes(module: ModuleType) -> list[tuple[str, object]]:
    """Return a module's own attributes, and those of the classes that it defines."""
    attributes: list[tuple[str, object]] = []
    for name, value in list(vars(module).items()):
        attributes.append((name, value))
        if inspect.isclass(value) and value.__module__ == module.__name__:
            for inner, attribute in list(vars(value).items()):
                plain = attribute.__func__ if isinstance(attribute, staticmethod) else attribute
                attributes.append((f"{name}.{inner}", plain))
    return attributes
