"""The options that say which cases run, when a run ends early, and what is changed about the cases."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gradcheck_cli import hooks
from gradcheck_cli.cli.options.configured import SECONDS, argument, option, takes
from gradcheck_cli.cli.options.typed_words import NamedSpec, SpecPath, keep_named
from gradcheck_cli.errors import GradcheckError, UsageError
from gradcheck_cli.spec.words import MODES
from gradcheck_cli.visible import clean, count, join_first

if TYPE_CHECKING:
    from rich.text import Text

    from gradcheck_cli.gate import Shard
    from gradcheck_cli.results import Policy
    from gradcheck_cli.running.run_loop import Stopper
    from gradcheck_cli.running.selection import Key, Past
    from gradcheck_cli.spec.case import Case, Judging, Power, Wanted


_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")


def _shard(value: str) -> tuple[int, int]:
    match = _SHARD.fullmatch(value.strip())
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= count:
        raise click.BadParameter(f"must be K/N with K from 1 to N, such as 1/4, but got '{value}'.")
    return index, count


def cache_option() -> Any:  # noqa: ANN401 (as `option`)
    """Return the field of the folder for past failures and durations."""
    kind = click.Path(file_okay=False, path_type=Path)
    text = "The folder for past failures and durations. [default: .gradcheck_cache in the project]"
    return option("--cache-dir DIR", kind, text)


def seed_option() -> Any:  # noqa: ANN401 (as `option`)
    """Return the field of the seed."""
    return option("--seed N", click.IntRange(min=0), "Draw inputs with this seed, whatever specs say.")


def _names_option(usage: str, kind: str, text: str) -> Any:  # noqa: ANN401 (as `option`)
    """Return the field of a repeatable option for names, which the shell completes."""
    return option(usage, None, f"{text}; repeatable.", multiple=True, shell_complete=hooks.completing(kind))


@dataclass(frozen=True)
class _Named:
    """Cases of requested names; empty fields mean all."""

    ops: tuple[str, ...] = _names_option("--op NAME", "ops", "Only this op")
    names: tuple[str, ...] = _names_option("--case NAME", "names", "Only this case")
    point: str | None = option(
        "--point INPUT=VALUE",
        None,
        "Check at the first sample point with these values, such as 'x[2]=37.2; y=[1, 2]'.",
    )


@dataclass(frozen=True)
class NamedCases(_Named):
    """Cases that are requested by name; empty fields mean all."""

    expression: str | None = option(
        "-k EXPR",
        None,
        "Only cases whose path, op or case contains these words, joined by and, or, not and brackets: "
        "-k 'huber and not wide'.",
    )
    tags: tuple[str, ...] = _names_option("--tag TAG", "tags", "Only specs with this tag")
    op_types: tuple[str, ...] = _names_option(
        "--op-type TYPE", "op_types", "Only specs with this op_type, or that cover it"
    )

    def choose(self, cases: Sequence[Case], paths: Sequence[str]) -> tuple[Case, ...]:
        """Return the requested cases of some paths.

        Raises:
            NoSpecsError: a requested name doesn't exist.
        """
        from gradcheck_cli.running.selection import WORDS, choose

        requested = {kind: getattr(self, kind) for kind in WORDS}
        chosen = choose(keep_named(cases, paths), self.expression, **requested)
        return tuple(_at_point(chosen, self.point))


def _at_point(cases: Sequence[Case], point: str | None) -> Sequence[Case]:
    """Return the cases, at a given point if there is one.

    Raises:
        UsageError: the point doesn't fit a case.
    """
    if point is None:
        return cases
    from gradcheck_cli.spec.values.points import at_point

    return [at_point(case, point) for case in cases]


@dataclass(frozen=True)
class PickedCases(_Named):
    """Cases of one spec, and the requested pair; `None` for all pairs."""

    seed: int | None = seed_option()
    spec: str = argument(type=SpecPath())
    pair: str | None = None

    def load(self) -> list[Case]:
        """Read the spec, and return the requested cases that can have the pair.

        Raises:
            NoSpecsError: there is no such case, or no such op.
            UsageError: no case can have such a pair.
        """
        from gradcheck_cli.running.selection import choose, filter_by_pair
        from gradcheck_cli.spec.load import load_cases

        cases = keep_named(load_cases([self.spec], seed=self.seed), [self.spec])
        chosen = choose(cases, names=self.names, ops=self.ops)
        return filter_by_pair(_at_point(chosen, self.point), self.label)

    @property
    def label(self) -> str | None:
        """The requested pair: `--pair`, or the end of the name that pytest gives its test."""
        named = self.spec.names[2:] if isinstance(self.spec, NamedSpec) else ()
        return next((name for name in named if name != "case"), self.pair)


def picking_options(text: str) -> Callable[..., Any]:
    """Return a decorator that adds the options that select cases and a pair of one spec."""
    pair = click.option("--pair", metavar="dOUT/dIN", shell_complete=hooks.completing("pairs"), help=text)
    return lambda function: pair(takes(PickedCases, "picked")(function))


def handle_cases(cases: Sequence[Case], handle: Callable[[Case], int]) -> int:
    """Handle each case. An error in some is printed on standard error, and the others go on.

    Returns:
        The gravest exit code, in the order 1 (a fault), 2, 3 (undecided), 0.

    Raises:
        GradcheckError: the error of the only case.
    """
    if len(cases) == 1:
        return handle(cases[0])
    codes, failed = set(), set()
    names_of: dict[str, list[str]] = {}  # by the error that they have
    for case in cases:
        try:
            codes.add(handle(case))
        except GradcheckError as error:
            names_of.setdefault(str(error), []).append(f"{case.op} · case {case.name} · {case.dtype}")
            failed.add(error.exit_code)
    for error_text, names in names_of.items():
        click.echo(f"{join_first(names, 1)}: {error_text}", err=True)
    if codes:  # one case has the requested pair; it is no fault of the command line that another one lacks it
        failed.discard(UsageError.exit_code)
    return next((code for code in (1, 2, 3) if code in codes | failed), 0)


def print_answers(
    cases: Sequence[Case], answer: Callable[[Case, int], tuple[int, str | Sequence[Text]]]
) -> int:
    """Print the answer for each case, given a width, as text or as lines; return the cases' exit code."""
    # Late imports: `blame --help` shouldn't wait for them.
    from gradcheck_cli.cli.console import print_lines, terminal_width
    from gradcheck_cli.running.session import start_tensorflow

    def handle(case: Case) -> int:
        start_tensorflow()  # before anything that imports it, or its start-up messages would be printed
        with redirect_stdout(sys.stderr):  # what the forward prints isn't part of the result
            code, content = answer(case, terminal_width())
        if isinstance(content, str):
            click.echo(content, nl=False)
        else:
            print_lines(content)
        return code

    return handle_cases(cases, handle)


@dataclass(frozen=True)
class SelectedCases:
    """The cases to run, a note on the selection, and the shard."""

    cases: tuple[Case, ...]
    notices: tuple[str, ...] = ()
    shard: Shard | None = None


@dataclass(frozen=True)
class SelectionOptions(NamedCases):
    """The options that say which cases run, and when a run ends early."""

    last_failed: bool = option(
        "--lf --last-failed", bool, "Only the cases that failed when they last ran; all, if none did."
    )
    failed_first: bool = option(
        "--ff --failed-first", bool, "Check first the cases that failed when they last ran."
    )
    changed: str | None = option(
        "--changed [REV]",
        None,
        "Leave out specs that, as recorded when they last ran, read nothing that has changed since the git "
        "revision REV. [without REV: HEAD, so what isn't committed]",
        is_flag=False,
        flag_value="HEAD",
    )
    shard: tuple[int, int] | None = option(
        "--shard K/N",
        _shard,
        "Check part K of N, balanced by how long cases took before; `gradcheck merge` joins the reports.",
    )
    stop_first: bool = option("-x --exitfirst", bool, "Stop after the first case that fails.")
    max_failures: int | None = option(
        "--max-failures N", click.IntRange(min=1), "Stop after the Nth case that fails."
    )
    max_time: float | None = option(
        "--max-time SECONDS",
        SECONDS,
        "Stop the run after this long; the remaining cases count as unchecked (exit 3).",
    )
    collect_only: bool = option("--collect-only", bool, "List the cases without checking them.")
    cache: Path | None = cache_option()

    @property
    def cache_folder(self) -> Path:
        """The folder with the history of past runs."""
        return self.cache or default_cache()

    @cached_property
    def _history(self) -> dict[Key, Past]:
        from gradcheck_cli.running.selection import read_history

        return read_history(self.cache_folder)

    def select(self, cases: Sequence[Case], paths: Sequence[str]) -> SelectedCases:
        """Return the cases of some paths that are to run.

        A requested name that doesn't exist is an error (exit 5). A selection that is empty because of git or
        past runs is none: there is nothing to check.
        """
        # Late imports: git and reading modules cost time.
        from gradcheck_cli.running.selection import failed_before, shard_of

        chosen = self.choose(cases, paths)
        notices = []
        shard = None
        if self.last_failed or self.failed_first:
            failed = failed_before(chosen, self._history)
            if self.last_failed and not failed:
                notices.append("--last-failed: nothing is known to have failed; checking all")
            left = () if self.last_failed and failed else chosen
            first = set(map(id, failed))
            chosen = (*failed, *(case for case in left if id(case) not in first))
        if self.changed is not None:
            from gradcheck_cli.running.changed import changed_cases

            touched = changed_cases(chosen, self.changed, self._history, self.cache_folder)
            notices.append(
                f"--changed {self.changed}: {len(touched)} of {count(len(chosen), 'case')} may be touched"
            )
            chosen = touched
        if self.shard is not None:
            whole = len(chosen)
            chosen, shard = shard_of(chosen, *self.shard, self._history)
            notices.append(f"shard {self.shard[0]}/{self.shard[1]}: {len(chosen)} of {count(whole, 'case')}")
        return SelectedCases(chosen, tuple(notices), shard)

    def narrowing_words(self, paths: Sequence[str]) -> list[str]:
        """Return what selects cases of some paths or ends a run early, as on a command line."""
        from gradcheck_cli.running.selection import WORDS

        words = ["::".join((path, *path.names)) for path in paths if isinstance(path, NamedSpec)]
        words += [f"{option} {word}" for kind, (option, *_) in WORDS.items() for word in getattr(self, kind)]
        flags = {"--last-failed": self.last_failed, "-x": self.stop_first}
        words += [option for option, is_on in flags.items() if is_on]
        values = {
            "-k": self.expression and repr(self.expression),
            "--changed": self.changed,
            "--shard": self.shard and "{}/{}".format(*self.shard),
            "--max-failures": self.max_failures,
            "--max-time": self.max_time and f"{self.max_time:g}",
        }
        return words + [f"{option} {value}" for option, value in values.items() if value is not None]

    def stopper(self, policy: Policy, began: float) -> Stopper:
        """Return what may end the run early, if anything; its time starts at `began`, of `time.monotonic`."""
        from gradcheck_cli.running.run_loop import Stopper

        return Stopper(
            policy.is_failure,
            max_failures=1 if self.stop_first else self.max_failures,
            max_time=self.max_time,
            began=began,
        )


def list_cases(cases: Sequence[Case]) -> None:
    """Print the cases that would run, one line each."""
    for case in cases:
        click.echo(f"{clean(case.spec)} · {case.op} · {case.name} · {case.dtype}")
    specs = len({case.spec for case in cases})
    click.echo(f"{count(specs, 'op')} · {count(len(cases), 'case')}")


def default_cache() -> Path:
    """Return the folder of the history: beside the nearest pyproject.toml, or at the repository's top."""
    here = Path.cwd()
    with suppress(OSError):
        for folder in (here, *here.parents):
            if (folder / "pyproject.toml").is_file() or (folder / ".git").exists():
                return folder / ".gradcheck_cache"
    return here / ".gradcheck_cache"


def _device(value: str) -> str:
    from gradcheck_cli.spec.spec_format import is_fit, type_of

    if not is_fit(type_of("device"), value):
        raise click.BadParameter(f"must be a device with its number, such as GPU:0, but got '{value}'.")
    return value


def _power(value: str) -> Power:
    """Read SIZE:PROBABILITY, the second between 0 and 1."""
    from gradcheck_cli.spec.case import Power

    size, _, miss = value.partition(":")
    try:
        power = Power(float(size), float(miss))
    except ValueError:
        power = Power(0.0, 0.0)
    if not (0 < power.size < math.inf and 0 < power.miss < 1):
        raise click.BadParameter(
            "must be SIZE:PROBABILITY, such as 0.01:0.05 (an error of 1 % in one element is missed with a "
            f"probability of at most 0.05), but got '{value}'."
        )
    return power


@dataclass(frozen=True)
class CaseOptions:
    """The command line's changes to cases; `None` and empty values leave them as their specs have them."""

    seed: int | None = seed_option()
    modes: tuple[str, ...] = option(
        "--mode", click.Choice(MODES), "Check in this mode, whatever specs say; repeatable.", multiple=True
    )
    device: str | None = option(
        "--device DEVICE",
        _device,
        "Run on this device, such as GPU:0; cases are skipped if it doesn't exist.",
    )
    power: Power | None = option(
        "--power SIZE:PROBABILITY",
        _power,
        "What random probes must detect: an error of this relative SIZE in one element is missed with at "
        "most this PROBABILITY. [default: 0.01:0.1]",
    )
    budget: float | None = option(
        "--budget SECONDS",
        SECONDS,
        "About how much processor time one case may take beyond the necessary minimum. Where single elements "
        "take longer, random probes replace them; what these can't see is inconclusive. [default: 10]",
    )
    require: str | None = option(
        "--require",
        click.Choice(["full"]),
        "full: refuse random probes; a Jacobian too large for anything else is inconclusive.",
    )
    search: float | None = option(
        "--search SECONDS",
        SECONDS,
        "After the check, search each case for this long for an input at which its gradient is wrong; see "
        "`gradcheck search`.",
    )

    def load(self, folders: Sequence[str]) -> tuple[Case, ...]:
        """Read the cases of specs; values are drawn from the requested seed."""
        from gradcheck_cli.spec.load import load_cases

        return load_cases(folders, seed=self.seed)

    def apply_to(self, cases: Sequence[Case]) -> tuple[Case, ...]:
        """Return cases in each of their modes, changed by these options."""
        from gradcheck_cli.spec.case import in_each_mode

        cases = in_each_mode(cases, self.modes, self.device)
        full_only = True if self.require == "full" else None
        return tuple(
            replace(
                case,
                judging=_changed(case.judging, full_only=full_only, budget=self.budget, power=self.power),
                wanted=_changed(case.wanted, search=self.search),
            )
            for case in cases
        )


_Group = TypeVar("_Group", "Judging", "Wanted")


def _changed(group: _Group, **options: Any) -> _Group:  # noqa: ANN401 (as `replace` has it)
    """Return a group of a case's fields, changed by the options that were given: those that aren't `None`."""
    return replace(group, **{name: value for name, value in options.items() if value is not None})
