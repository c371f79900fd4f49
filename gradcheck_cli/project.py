"""The project's settings: `[tool.gradcheck]` in the nearest pyproject.toml."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradcheck_cli.errors import UsageError
from gradcheck_cli.plain_files import MIB, read_plain

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT = "specs"
_LIMIT = 16 * MIB  # a pyproject.toml is text that people read
SPECS_VARIABLE = "GRADCHECK_SPECS"


@dataclass(frozen=True)
class Settings:
    """A `[tool.gradcheck]` table, and its file; empty if there is none."""

    file: Path | None = None
    table: dict[str, Any] = field(default_factory=dict)

    def place(self, key: str) -> str:
        """Return `file:line: tool.gradcheck.key` for a message; with the line, if it can be found."""
        pattern = re.compile(rf"""^\s*["']?{re.escape(key.rpartition(".")[2])}["']?\s*=""")
        try:
            lines = [] if self.file is None else read_plain(self.file, _LIMIT).decode().splitlines()
        except (OSError, UnicodeDecodeError):
            lines = []
        line = next((index for index, text in enumerate(lines, start=1) if pattern.match(text)), 0)
        where = f"{self.file}:{line}" if line else f"{self.file}"
        return f"{where}: tool.gradcheck.{key}"

    def resolve_path(self, path: str) -> str:
        """Return a path that the file gives relative to its own folder, relative to the working directory."""
        return path if self.file is None else os.path.relpath(self.file.parent / path)


def read_settings(start: Path | None = None) -> Settings:
    """Return the settings of the nearest pyproject.toml, upward, that has a `[tool.gradcheck]`.

    Raises:
        UsageError: a pyproject.toml isn't TOML, or `[tool.gradcheck]` isn't a table.
    """
    start = Path.cwd() if start is None else start
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if file.is_file():
            table = _table_of(file)
            if table is not None:
                return Settings(file, table)
    return Settings()


def settings_for(paths: Sequence[str], config: str | None = None) -> Settings:
    """Return the settings that hold for some specs.

    Returns:
        Those of the nearest pyproject.toml above the specs that has a `[tool.gradcheck]`, as pytest and ruff
        choose theirs; where there is none, or no specs are named, those of the working folder.

    Raises:
        UsageError: as in `read_settings`; or the specs have several such files.
    """
    if config is not None:
        table = _table_of(Path(config))
        if table is None:
            raise UsageError(f"{config}: has no [tool.gradcheck]")
        return Settings(Path(config).absolute(), table)
    here = read_settings()
    nearest = {settings.file: settings for settings in map(settings_near, paths)}
    nearest = {file or here.file: settings if file else here for file, settings in nearest.items()}
    if len(nearest) > 1:
        names = " and ".join(os.path.relpath(file) if file else "no file" for file in nearest)
        raise UsageError(
            f"{names} set options for these specs: run gradcheck once for each, or choose one with --config"
        )
    return next(iter(nearest.values()), here)


def settings_near(path: str | Path) -> Settings:
    """Return the settings in the nearest pyproject.toml above a file or folder, as in `read_settings`."""
    start = Path(path).absolute()
    return read_settings(start if start.is_dir() else start.parent)


def default_paths(start: Path | None = None, settings: Settings | None = None) -> tuple[str, ...]:
    """Return where specs are if the command line doesn't say.

    Returns:
        The paths in $GRADCHECK_SPECS, else `specs` under `[tool.gradcheck]` in the nearest pyproject.toml
        that has such a table, relative to `start`; else `specs`.

    Raises:
        UsageError: the pyproject.toml isn't TOML, or `specs` is neither a path nor a list of paths.
    """
    start = Path.cwd() if start is None else start
    from_environment = [path for path in os.environ.get(SPECS_VARIABLE, "").split(os.pathsep) if path]
    if from_environment:
        return tuple(from_environment)
    settings = settings or read_settings(start)
    if settings.file is None or "specs" not in settings.table:
        return (DEFAULT,)
    specs = settings.table["specs"]
    if isinstance(specs, str):
        specs = [specs]
    if not isinstance(specs, list) or not specs or not all(isinstance(path, str) for path in specs):
        raise UsageError(f"{settings.place('specs')}: must be a path or a list of paths, but got {specs!r}")
    return tuple(os.path.relpath(settings.file.parent / path, start) for path in specs)


def _table_of(file: Path) -> dict[str, Any] | None:
    try:
        content = tomllib.loads(read_plain(file, _LIMIT).decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{file}: can't be read as TOML: {error}") from error
    tool = content.get("tool")
    if not isinstance(tool, dict) or "gradcheck" not in tool:
        return None
    table = tool["gradcheck"]
    if not isinstance(table, dict):
        raise UsageError(f"{file}: tool.gradcheck: must be a table, but got {table!r}")
    return table
