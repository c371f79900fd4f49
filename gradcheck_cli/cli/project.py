"""What the project says for itself: `[tool.gradcheck]` in the nearest pyproject.toml."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gradcheck_cli.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT = "specs"


def default_paths(start: Path | None = None) -> tuple[str, ...]:
    """Return where specs are when the command line doesn't say.

    Args:
        start: the folder from which to look upward; default the working directory.

    Returns:
        `[tool.gradcheck] specs` of the nearest pyproject.toml that has one, as paths from `start`, else
        `specs`.

    Raises:
        UsageError: the pyproject.toml isn't TOML, or `specs` is neither a path nor a list of paths.
    """
    start = Path.cwd() if start is None else start
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            specs = _specs_of(file)
            if specs is not None:
                return tuple(os.path.relpath(folder / path, start) for path in specs)
    return (DEFAULT,)


def _specs_of(file: Path) -> list[str] | None:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file}: can't be read as TOML: {error}") from error
    tool = content.get("tool")
    section = tool.get("gradcheck") if isinstance(tool, dict) else None
    if not isinstance(section, dict) or "specs" not in section:
        return None
    specs = section["specs"]
    if isinstance(specs, str):
        specs = [specs]
    if not isinstance(specs, list) or not specs or not all(isinstance(path, str) for path in specs):
        raise UsageError(
            f"{file}: tool.gradcheck.specs: must be a path or a list of paths, but got {specs!r}"
        )
    return specs
