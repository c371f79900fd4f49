"""The stable codes of findings, such as `GC102 linearity`: the same in every report, and never reused.

The hundreds digit says what a finding means for a run: 1 a gradient is wrong, 2 it is undecided, 3 it
couldn't be checked, 4 it is only reported, 5 it differs from the baseline, 6 something wasn't run, 7 a spec
has a fault. `codes.txt` beside this file has the table of them, and `codes.md` a page for each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from gradcheck_cli import results
from gradcheck_cli.errors import UsageError
from gradcheck_cli.gate import BaselineFinding


class Code(NamedTuple):
    """A kind of finding: `GC102`, `linearity`, and what it says in one sentence."""

    number: str
    name: str
    title: str

    def __str__(self) -> str:
        return f"{self.number} {self.name}"


def _read(name: str) -> str:
    return resources.files("gradcheck_cli.reporting").joinpath(name).read_text(encoding="utf-8")


# The internal name of a finding -> its code, from the table in `codes.txt`. Some share one, as below: `None`
# is found as a value and by a check.
_ROWS = (line.split(maxsplit=3) for line in _read("codes.txt").splitlines())
_CODES = {rule: Code(*parts) for rule, *parts in _ROWS}
_SAME = {
    "check/connected": "pair/none",
    "check/finite": "pair/nonfinite",
    "check/form": "pair/form",
    "check/all_zero": "undecided/all_zero",
    "check/precision": "precision",
    "check/case": "error/",  # an error that the baseline holds
    "error/workers": "error/worker",
}
_RULES = {
    results.Status.UNEXPECTED_PASS: "pair/unexpected_pass",
    results.Status.ERROR: "error/gradient",
    results.Status.SKIPPED: "skipped",
}
CODES = tuple(sorted(set(_CODES.values())))
PAGES = "codes.md"
# For a check of the vjp: `second_order.linearity`.
_SECOND = re.compile(r"^check/second_order\.")


def code_of(rule: str) -> Code:
    """Return the code of a rule, the `rule` of a `Finding`: such as `check/linearity` or `error/import`."""
    rule = _SECOND.sub("check/", rule)
    rule = _SAME.get(rule, rule)
    kind = rule.partition("/")[0]
    return _CODES.get(rule) or _CODES[f"{kind}/"]


def code_for(
    found: results.PairResult | results.CheckResult | results.CaseError | BaselineFinding,
) -> Code | None:
    """Return the code of a result, an error or a difference from the baseline; `None` for what passed.

    A check that is skipped because of the op (a mode that it can't have) has its own code.
    """
    rule = ""
    if isinstance(found, results.CaseError):
        rule = f"error/{found.kind}"
    elif isinstance(found, BaselineFinding):
        rule = f"baseline/{found.change}"
    elif isinstance(found, results.CheckResult):
        rule = "" if found.status in results.GREEN else f"check/{found.name}"
    elif found.is_open:
        rule = f"undecided/{found.undecided}"
    elif found.status in (results.Status.MISMATCHED, results.Status.EXPECTED_MISMATCH, results.Status.KNOWN):
        rule = f"pair/{found.mismatch.partition(' ')[0] or 'value'}"
    else:
        rule = _RULES.get(found.status, "")
    return code_of(rule) if rule else None


def find_code(text: str) -> Code | None:
    """Return the code that somebody typed: `GC102`, `gc102` or `linearity`."""
    query = text.strip().lower()
    names = {code.name: code for code in CODES}
    names |= {code.number.lower(): code for code in CODES}
    return names.get(query.replace("-", "_"))


def page_of(code: Code) -> str:
    """Return a code's page in Markdown, with its heading first."""
    return _pages()[str(code)]


@lru_cache(maxsize=1)
def _pages() -> dict[str, str]:
    sections = re.split(r"^## ", _read(PAGES), flags=re.MULTILINE)[1:]
    return {page.partition("\n")[0]: re.sub(r"\n# .*", "", f"## {page}".rstrip()) + "\n" for page in sections}


@dataclass(frozen=True)
class Ignored:
    """The codes, as `GC212`, with which a pair doesn't count."""

    numbers: frozenset[str] = frozenset()

    def mark(self, case: results.CaseResult) -> results.CaseResult:
        """Return a case in which undecided pairs with these codes are `ignored`."""
        undecided = results.Status.INCONCLUSIVE
        if not self.numbers or case.status is not undecided:
            return case
        pairs = tuple(
            replace(pair, status=results.Status.IGNORED)
            if pair.status is undecided and getattr(code_for(pair), "number", "") in self.numbers
            else pair
            for pair in case.pairs
        )
        is_same = pairs == case.pairs
        return case if is_same else replace(case, pairs=pairs, status=results.case_status(pairs, case.checks))


def read_ignored(texts: Sequence[str]) -> Ignored:
    """Read which codes don't count: codes and beginnings of codes, several of them joined by commas.

    Raises:
        UsageError: there is no such code, or it can't be ignored.
    """
    # The pair was tested, but the numbers can't tell whether it is right.
    may_be = frozenset(
        code.number
        for rule, code in _CODES.items()
        if rule.startswith("undecided/") and rule != "undecided/all_zero"
    )
    left_out: frozenset[str] = frozenset()
    for text in (part.strip() for joined in texts for part in joined.split(",")):
        numbers = frozenset(code.number for code in CODES if text and code.number.startswith(text.upper()))
        if not numbers:
            raise UsageError(f"--ignore: no code begins with '{text}'; `gradcheck explain` lists them.")
        if not may_be & numbers:
            raise UsageError(
                f"--ignore: '{text}' always counts; only pairs that are undecided by numbers can be ignored. "
                f"`gradcheck explain {min(numbers)}` says how a spec excuses it."
            )
        left_out |= may_be & numbers
    return Ignored(left_out)
