"""Groups of options, which a command takes as one object, and where their values may come from.

Options can also be set by `GRADCHECK_...` variables or, with lower priority, in `[tool.gradcheck]` of the
nearest pyproject.toml.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gradcheck_cli import hooks
from gradcheck_cli.errors import UsageError, nearest, suggest
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


def read_settings(start: str | Path = ".") -> Settings:
    """Return the settings of the nearest pyproject.toml, upward, that has a `[tool.gradcheck]`.

    Args:
        start: a folder, or a file in it.

    Raises:
        UsageError: a pyproject.toml isn't TOML, or `[tool.gradcheck]` isn't a table.
    """
    start = Path(start).absolute()
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
    own = [settings if settings.file else here for settings in map(read_settings, paths)]
    by_file = {settings.file: settings for settings in own}
    if len(by_file) > 1:
        names = " and ".join(os.path.relpath(file) if file else "no file" for file in by_file)
        raise UsageError(
            f"{names} set options for these specs: run gradcheck once for each, or choose one with --config"
        )
    return next(iter(by_file.values()), here)


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


@cache
def _parse(content: bytes) -> dict[str, Any]:
    """Parse TOML, once: each call of `assert_gradients` asks what the file says now."""
    return tomllib.loads(content.decode())


def _table_of(file: Path) -> dict[str, Any] | None:
    try:
        content = _parse(read_plain(file, _LIMIT))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{file}: can't be read as TOML: {error}") from error
    tool = content.get("tool")
    if not isinstance(tool, dict) or "gradcheck" not in tool:
        return None
    table = tool["gradcheck"]
    if not isinstance(table, dict):
        raise UsageError(f"{file}: tool.gradcheck: must be a table, but got {table!r}")
    return table


SECONDS, PERCENT = click.FloatRange(min=0, min_open=True), click.FloatRange(0, 100)


def option(usage: str, kind: Any = None, text: str = "", **more: Any) -> Any:  # noqa: ANN401 (as `field` has it)
    """Return a field of a class of options, which an option of the command line fills.

    Args:
        usage: its names and its metavar, as the help has them: `-j --jobs N`.
        kind: what click takes as its type; `bool` for a flag.
        text: its help.
        more: further arguments of `click.option`.
    """
    words = usage.split()
    names = [word for word in words if word.startswith("-")]
    own = (
        {"is_flag": True}
        if kind is bool
        else {"type": kind, "metavar": " ".join(words[len(names) :]) or None}
    )
    default = more.get("default", False if kind is bool else () if "multiple" in more else None)
    return field(default=default, metadata={"add": partial(click.option, *names, help=text, **own, **more)})


def argument(**more: Any) -> Any:  # noqa: ANN401 (as `field` has it)
    """Return a field of a class of options, which an argument of the command line fills."""
    return field(default=(), metadata={"add": partial(click.argument, **more)})


def group(kind: type) -> Any:  # noqa: ANN401 (as `field` has it)
    """Return a field of a class of options, which holds an object of another such class."""
    return field(default_factory=kind, metadata={"group": kind})


def takes(kind: type, name: str = "options") -> Callable[..., Any]:
    """Return a decorator that adds the options of a class to a command, and passes an object of it.

    Args:
        kind: a dataclass, with fields made by `option`, `argument` and `group`.
        name: the parameter of the command's function that takes the object.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **values: Any) -> Any:  # noqa: ANN401 (click's own)
            values[name] = _filled(kind, values)
            return function(*arguments, **values)

        return add_options(kind, call)

    return decorate


def add_options(kind: type, function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a class to a command."""
    for own in reversed(fields(kind)):
        if "group" in own.metadata:
            function = add_options(own.metadata["group"], function)
        elif own.metadata:
            function = own.metadata["add"](own.name)(function)
    return function


def _filled(kind: type, values: dict[str, Any]) -> Any:  # noqa: ANN401 (of that class)
    parts = {own.name: own.metadata.get("group") for own in fields(kind)}
    return kind(**{name: _filled(part, values) if part else values.pop(name) for name, part in parts.items()})


def form_option(*forms: str, more: str = "") -> Any:  # noqa: ANN401 (as `option`)
    """Return the field of a class of options for how a command prints; `more` goes on with its help."""
    return option("--format", click.Choice(["table", *forms]), f"What to print{more}.", default="table")


def takes_form(*forms: str, more: str = "") -> Callable[..., Any]:
    """Return a decorator that adds this option alone to a command, as `form`."""
    decorate: Callable[..., Any] = form_option(*forms, more=more).metadata["add"]("form")
    return decorate


# Options that make no sense in a file.
_NEVER = ("point", "help", "config", "show-config", "collect-only", "no-baseline", "accept")
_PREFIX = "GRADCHECK_"
_COMMAND_LINE = "command line"


class ConfiguredCommand(click.Command):
    """A command whose options have defaults in the environment and in `[tool.gradcheck]`."""

    only: Sequence[str] = ()  # the only keys that it takes from there; empty for all of its options

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 (click's own)
    ) -> click.Context:
        """Combine the command line, the environment and the file, in this order of priority."""
        # Help must work with a faulty pyproject.toml too.
        settings = Settings() if {"-h", "--help"} & set(args) else self._settings_of(args)
        keys = self._keys()
        for key, option in keys.items():
            option.envvar = self.variable(key)
        self._report_unknown(settings, keys)
        extra["default_map"] = {
            str(keys[key].name): _value(settings, key, keys[key], value)
            for key, value in settings.table.items()
            if key in keys
        }
        extra["obj"] = settings
        if parent is None:  # else the group's context; click keeps the first that it sees
            extra.setdefault("help_option_names", ["-h", "--help"])
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.BadParameter as error:
            raise self._add_place(error, settings) or error from error

    def _settings_of(self, args: Sequence[str]) -> Settings:
        """Return the settings for the specs that a command line names, before it is parsed."""
        try:
            # Click keeps the help option that it sees first.
            context = click.Context(self, resilient_parsing=True, help_option_names=["-h", "--help"])
            values, _, _ = self.make_parser(context).parse_args([*args])
        except click.UsageError:  # it is reported when the command line is parsed
            values = {}
        # Newer versions of click have an object of their own for what isn't given.
        paths = values["paths"] if isinstance(values.get("paths"), tuple | list) else ()
        config = values["config"] if isinstance(values.get("config"), str) else None
        if config is not None and not Path(config).is_file():
            raise UsageError(f"--config: there is no file '{config}'")
        settings = settings_for([str(path) for path in paths], config)
        if settings.file not in (None, read_settings().file):
            click.echo(f"settings: {os.path.relpath(str(settings.file))}", err=True)
        return settings

    def variable(self, key: str) -> str:
        """Return the environment variable of an option."""
        return f"{_PREFIX}{key.upper().replace('-', '_')}"

    def settings(self, ctx: click.Context) -> Iterator[tuple[str, str, str]]:
        """Yield each option's key, its value as text, and where it comes from."""
        settings = ctx.obj
        shown = "" if settings.file is None else os.path.relpath(settings.file)
        if "paths" in ctx.params:
            paths = ctx.params["paths"]
            from_file = shown if "specs" in settings.table else "default"
            unasked = SPECS_VARIABLE if os.environ.get(SPECS_VARIABLE) else from_file
            yield (
                "specs",
                " ".join(paths or default_paths(settings=settings)),
                _COMMAND_LINE if paths else unasked,
            )
        for key, option in self._keys().items():
            where = {
                ParameterSource.COMMANDLINE: _COMMAND_LINE,
                ParameterSource.ENVIRONMENT: self.variable(key),
                ParameterSource.DEFAULT_MAP: shown,
            }
            source = ctx.get_parameter_source(str(option.name)) or ParameterSource.DEFAULT
            yield key, _text(ctx.params.get(str(option.name))), where.get(source, "default")

    def _keys(self) -> dict[str, click.Option]:
        """Return the options that may be configured, by key: the long name, without its dashes."""
        options = [option for option in self.params if isinstance(option, click.Option)]
        keys = {max(option.opts, key=len).lstrip("-"): option for option in options}
        return {
            key: option
            for key, option in keys.items()
            if key not in _NEVER and (not self.only or key in self.only)
        }

    def _report_unknown(self, settings: Settings, keys: dict[str, click.Option]) -> None:
        """Raise for unknown keys of the file, and warn about variables with a similar name."""
        if self.only:  # `run` checks the other keys
            return
        known_keys = [*keys, "specs"]
        faults = [
            f"{settings.place(key)}: unknown key. "
            + suggest(key.replace("_", "-"), sorted(known_keys), "Possible keys")
            for key in settings.table
            if key not in known_keys
        ]
        if faults:
            raise UsageError("\n".join(faults))
        variables = [SPECS_VARIABLE, *map(self.variable, keys)]
        ends = [variable.removeprefix(_PREFIX) for variable in variables]
        unknown = (name for name in sorted(os.environ) if name.startswith(_PREFIX) and name not in variables)
        for name in unknown:
            if near := nearest(name.removeprefix(_PREFIX), ends):
                click.echo(f"{name}: unknown variable, ignored. Did you mean {_PREFIX}{near}?", err=True)

    def _add_place(self, error: click.BadParameter, settings: Settings) -> Exception | None:
        """Return the error with the place of the bad value, unless that is the command line."""
        if error.ctx is None or error.param is None:
            return None
        source = error.ctx.get_parameter_source(str(error.param.name))
        key = max(error.param.opts, key=len).lstrip("-")
        if source is ParameterSource.DEFAULT_MAP:
            return UsageError(f"{settings.place(key)}: {error.message}")
        if source is ParameterSource.ENVIRONMENT:
            return UsageError(f"{self.variable(key)}: {error.message}")
        return None


class RunCommand(ConfiguredCommand):
    """`run`, whose help groups its many options."""

    # headings, and the names of their options' parameters in order
    groups = (
        (
            "Which cases",
            "ops names expression tags op_types last_failed failed_first changed shard collect_only cache",
        ),
        ("How they are checked", "seed modes device power budget require search strict strict_precision"),
        ("When to end", "stop_first max_failures max_time is_watching"),
        ("What is reported", "ignore form reports durations quiet verbose"),
        ("Processes", "jobs isolate timeout memory cluster allow_version_skew"),
    )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options group by group, and the rest under the last heading."""
        records = {
            param.name: record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx))
        }
        own_groups = [(title, names.split()) for title, names in self.groups]
        features = [(own.heading, [part.name for part in fields(own.kind)]) for own in hooks.run_options()]
        for title, names in (*own_groups, *features):
            with formatter.section(title):
                formatter.write_dl([records.pop(name) for name in names if name in records])
        with formatter.section("Other options"):
            formatter.write_dl(list(records.values()))


class SharingCommand(ConfiguredCommand):
    """A command that takes from `[tool.gradcheck]` how cases run, as far as it has these options."""

    only = ("cache-dir", "seed", "jobs", "timeout", "memory", "isolate", "on", "allow-version-skew")


def _value(settings: Settings, key: str, option: click.Option, value: object) -> object:
    """Return a TOML value as an option takes it, with paths relative to the working directory."""
    place = settings.place(key)
    if option.is_flag and option.secondary_opts == [] and isinstance(option.type, click.types.BoolParamType):
        if not isinstance(value, bool):
            raise UsageError(f"{place}: must be true or false, but got {value!r}")
        return value
    values = value if isinstance(value, list) else [value]
    if (isinstance(value, list) and not option.multiple) or not all(
        isinstance(item, str | int | float) and not isinstance(item, bool) for item in values
    ):
        kind = "a text, a number, or a list of them" if option.multiple else "a text or a number"
        raise UsageError(f"{place}: must be {kind}, but got {value!r}")
    texts = [str(item) for item in values]
    if isinstance(option.type, click.Path):
        texts = [settings.resolve_path(text) for text in texts]
    elif option.name == "reports":
        texts = [_report(settings, text) for text in texts]
    return texts if option.multiple else texts[0]


def _report(settings: Settings, text: str) -> str:
    kind, separator, file = text.partition("=")
    return f"{kind}={settings.resolve_path(file)}" if separator and file else text


def _text(value: object) -> str:
    if value is None or value == ():
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return " ".join(_text(item) for item in value)
    return str(value)
