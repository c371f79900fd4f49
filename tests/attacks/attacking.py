"""One attack on the verdicts: an op, its gradient, what is true of it, and what gradcheck says of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

import gradcheck_cli

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# What may be said of a gradient, by what is true of it. "unclear": the numbers can't decide, and saying so is
# fair; so is deciding rightly, since it is a right gradient. "unchecked": nothing was tested.
ALLOWED = {
    "right": {"passed"},
    "wrong": {"mismatched"},
    "not green": {"mismatched", "inconclusive", "error", "unexpected_pass"},
    "unclear": {"passed", "inconclusive"},
    "unchecked": {"inconclusive", "error"},
    "as expected": {"expected_mismatch"},  # wrong, in the way that the spec says
}
_MODULE = "attacked"  # where the functions are put, so that a spec can name them


@dataclass(frozen=True)
class Attack:
    """An op under attack.

    Attributes:
        name: unique in its table.
        truth: a key of `ALLOWED`.
        inputs: as in a spec.
        forward: a function, or the text of a spec's `forward`.
        gradient: a function `(op, *upstream)`, where the gradient isn't part of `forward`.
        keys: what else the spec says.
        functions: other functions that the spec names, as `attacked:NAME`.
    """

    name: str
    truth: str
    inputs: Mapping[str, Any]
    forward: Callable[..., Any] | str
    gradient: Callable[..., Any] | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def spec(self) -> dict[str, Any]:
        """Return the spec, with its functions in a module of their own."""
        module = sys.modules[_MODULE] = ModuleType(_MODULE)
        for name, function in self.functions.items():
            setattr(module, name, function)
        spec = {"op": self.name, "inputs": dict(self.inputs), **self.keys}
        for role, function in (("forward", self.forward), ("gradient", self.gradient)):
            if isinstance(function, str):
                spec[role] = function
            elif function is not None:
                setattr(module, role, function)
                spec[role] = f"{_MODULE}:{role}"
        return spec

    def report(self) -> Any:
        """Check it in this process."""
        return gradcheck_cli.check(self.spec())


def said_of(attack: Attack) -> tuple[dict[str, str], str]:
    """Return what is said of each case, check and pair of an attack; and by which rules, and why."""
    said, rest = {}, []
    for case in attack.report().cases:
        said |= {case.case: str(case.status)}
        said |= {f"{case.case} {check.name}": str(check.status) for check in case.checks}
        said |= {f"{case.case} {pair.label}": str(pair.status) for pair in case.pairs}
        rest += [f"{pair.mismatch} {pair.undecided} {pair.numbers.decided_by}" for pair in case.pairs]
    return said, "; ".join(rest)


def require(attack: Attack) -> Any:
    """Check an attack and assert that what is said of it is true; return the report."""
    report = attack.report()
    found = {str(case.status) for case in report.cases}
    said = f"{attack.name} is {attack.truth}, but {', '.join(sorted(found))}"
    assert found <= ALLOWED[attack.truth], f"{said}:\n{gradcheck_cli.render_report(report)}"
    return report
