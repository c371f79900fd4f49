"""The stable codes of findings, such as `GC102 linearity`: the same in every report, and never reused.

The hundreds digit says what a finding means for a run: 1 a gradient is wrong, 2 it is undecided, 3 it
couldn't be checked, 4 it is only reported, 5 it differs from the baseline, 6 something wasn't run, 7 a spec
has a fault. `codes.md` beside this file has a page for each.
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


# The internal name of a finding -> its code. Some share one: `None` is found as a value and by a check.
_CODES = {
    "pair/value": Code("GC101", "value", "The gradient isn't the derivative."),
    "check/linearity": Code("GC102", "linearity", "The gradient isn't linear in its upstream."),
    "pair/none": Code("GC103", "none", "The gradient is None, and the derivative isn't zero."),
    "pair/nonfinite": Code("GC104", "nonfinite", "The gradient is NaN or infinite; the derivative isn't."),
    "pair/form": Code("GC105", "form", "The gradient has another shape or dtype than its input."),
    "check/zero_upstream": Code("GC106", "zero_upstream", "The gradient isn't zero for a zero upstream."),
    "check/repeat": Code("GC107", "repeat", "The same upstream gives a different gradient the next time."),
    "check/retrace": Code("GC108", "retrace", "The gradient differs when the op is traced again."),
    "check/modes": Code("GC109", "modes", "Two modes have different gradients."),
    "check/inputs_unmodified": Code("GC110", "inputs_unmodified", "The forward writes to its inputs."),
    "check/reference_forward": Code("GC111", "reference_forward", "The forward isn't its reference."),
    "check/variables_order": Code(
        "GC112", "variables_order", "The gradient pairs variables by their position."
    ),
    "check/second_point": Code("GC113", "second_point", "The gradient is right at the first point only."),
    "pair/raises": Code("GC114", "raises", "The gradient raises, but the spec expects another fault."),
    "check/batched": Code("GC117", "batched", "tf.vectorized_map can't vectorise the gradient."),
    "check/unreached": Code("GC116", "unreached", "An excuse for an unseen side isn't true."),
    "check/": Code("GC115", "own_check", "A check of another package found something."),
    "pair/unexpected_pass": Code("GC120", "unexpected_pass", "A gradient that should be wrong is right."),
    "undecided/": Code("GC200", "undecided", "The numbers can't tell whether the gradient is right."),
    "undecided/all_zero": Code("GC201", "nothing_tested", "Derivative and gradient are zero everywhere."),
    "undecided/stop_gradient": Code("GC202", "stop_gradient", "A stop_gradient changes the derivative."),
    "undecided/bound": Code("GC203", "wide_bound", "The tolerance lets any gradient through."),
    "undecided/probe": Code("GC204", "probe", "Random probes can't tell."),
    "check/deterministic": Code("GC205", "deterministic", "The forward changes from run to run."),
    "check/frozen": Code("GC206", "frozen", "A draw or a stop couldn't be held."),
    "check/override": Code("GC207", "override", "The override missed some ops of its type."),
    "check/variables": Code("GC208", "variables", "Gradients for variables weren't checked."),
    "check/custom_gradient": Code("GC209", "custom_gradient", "No backward pass ran a custom gradient."),
    "undecided/jump": Code("GC211", "jump", "The function jumps at this point."),
    "undecided/noise": Code("GC212", "noise", "The forward's noise hides its slope."),
    "undecided/singular": Code("GC213", "singular", "The function or its slope isn't finite here."),
    "undecided/domain": Code("GC214", "domain", "The domain leaves no room to step."),
    "undecided/unresolved": Code("GC215", "unresolved", "Differences don't settle on one slope."),
    "undecided/staircase": Code("GC216", "staircase", "The function is a staircase, like rounding."),
    "undecided/low_precision": Code("GC217", "low_precision", "This precision shows too few digits."),
    "undecided/ties": Code("GC219", "ties", "Inputs are tied at this point."),
    "undecided/range": Code("GC220", "range", "Wrong farther out than the spec says that inputs go."),
    "undecided/joined_kinks": Code("GC221", "joined_kinks", "Several ops are at a kink here at once."),
    "undecided/rounding": Code("GC222", "rounding", "Rounding inside the gradient may explain the error."),
    "error/import": Code("GC301", "import", "A module that the spec names can't be imported."),
    "error/attribute": Code("GC302", "attribute", "A module has no such function."),
    "error/op_type": Code("GC303", "op_type", "TensorFlow has no such op type, or not with these inputs."),
    "error/inputs": Code("GC304", "inputs", "The forward doesn't take these inputs."),
    "error/values": Code("GC305", "values", "An input has no value that can be moved."),
    "error/outputs": Code("GC306", "outputs", "The forward returns something else than the spec says."),
    "error/pairs": Code("GC307", "pairs", "There is no such pair, or none at all."),
    "error/variables": Code("GC308", "unusable_variables", "The variables can't be inputs."),
    "error/covers": Code("GC309", "covers", "A gradient that the spec covers wasn't called."),
    "error/forward": Code("GC310", "forward", "The forward raises."),
    "error/gradient": Code("GC311", "gradient", "The gradient raises."),
    "error/gradient_count": Code("GC312", "gradient_count", "The number of gradients is wrong."),
    "error/override_missed": Code("GC313", "override_missed", "The override took effect nowhere."),
    "error/reference": Code("GC314", "reference", "The reference can't be compared with the forward."),
    "error/crash": Code("GC315", "crash", "The process of the case crashed."),
    "error/timeout": Code("GC316", "timeout", "The case took too long."),
    "error/memory": Code("GC317", "memory", "The case ran out of memory."),
    "error/internal": Code("GC318", "internal", "gradcheck failed; the gradient wasn't judged."),
    "error/worker": Code("GC319", "worker", "A cluster's worker couldn't check the case."),
    "error/versions": Code("GC320", "versions", "A cluster's worker has other versions than this machine."),
    "error/": Code("GC300", "error", "The gradient couldn't be checked."),
    "skipped": Code("GC401", "skipped", "The spec says not to check it."),
    "check/mode": Code("GC402", "mode", "The op can't have this mode."),
    "check/device": Code("GC403", "device", "There is no such device."),
    "check/tensorflow": Code("GC404", "tensorflow", "It is for other versions of TensorFlow."),
    "precision": Code("GC405", "precision", "The formula is right; the declared dtype loses digits."),
    "check/second_order": Code("GC406", "second_order", "The gradient's own gradient wasn't checked."),
    "baseline/vanished": Code("GC501", "vanished", "A pair that was checked no longer is."),
    "baseline/loosened": Code("GC502", "loosened", "A tolerance is wider than it was."),
    "baseline/drifted": Code("GC503", "drifted", "An error grew tenfold within its tolerance."),
    "baseline/gradient_changed": Code(
        "GC504", "gradient_changed", "The gradient changed, but its forward didn't."
    ),
    "baseline/weakened": Code("GC505", "weakened", "Less is checked than before."),
    "baseline/broke": Code("GC506", "broke", "What was right in the older report is wrong."),
    "baseline/both_changed": Code("GC507", "both_changed", "Forward and gradient changed together."),
    "baseline/forward_changed": Code("GC508", "forward_changed", "The forward changed."),
    "baseline/new": Code("GC509", "new", "A pair isn't in the baseline yet."),
    "baseline/known": Code("GC512", "known", "A fault that the baseline holds is still there."),
    "baseline/renamed": Code("GC510", "renamed", "A pair has another name than before."),
    "baseline/mended": Code("GC511", "mended", "What was wrong in the older report is right."),
    "unchecked": Code("GC601", "unchecked", "Not everything was checked."),
    "uncovered": Code("GC602", "uncovered", "No pair that passed ran a hand-written gradient."),
    "unseen": Code("GC603", "unseen", "No checked point takes a side of a branch."),
    "spec": Code("GC701", "spec", "A spec has a fault, and nothing was run."),
}
_SAME = {
    "check/connected": "pair/none",
    "check/finite": "pair/nonfinite",
    "check/form": "pair/form",
    "check/all_zero": "undecided/all_zero",
    "check/precision": "precision",
    "check/case": "error/",  # an error that the baseline holds
    "error/workers": "error/worker",
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


def rule_of_pair(pair: results.PairResult) -> str:
    """Return the rule that gave a pair its status; empty if it passed."""
    if pair.status is results.Status.UNEXPECTED_PASS:
        return "pair/unexpected_pass"
    if pair.is_open:
        return f"undecided/{pair.undecided}"
    wrong = (results.Status.MISMATCHED, results.Status.EXPECTED_MISMATCH, results.Status.KNOWN)
    if pair.status in wrong:
        return f"pair/{pair.mismatch.partition(' ')[0] or 'value'}"
    return {results.Status.ERROR: "error/gradient", results.Status.SKIPPED: "skipped"}.get(pair.status, "")


def numbers_may_not_tell(code: Code) -> bool:
    """Whether a pair with this code was tested, but the numbers can't tell whether it is right."""
    rule = next(rule for rule, numbered in _CODES.items() if numbered is code)
    return rule.startswith("undecided/") and rule != "undecided/all_zero"


def code_of_pair(pair: results.PairResult) -> Code | None:
    """Return a pair's code; `None` if it passed."""
    rule = rule_of_pair(pair)
    return code_of(rule) if rule else None


def code_of_check(check: results.CheckResult) -> Code | None:
    """Return a check's code; `None` if it passed.

    A check that is skipped because of the op (a mode that it can't have) has its own code.
    """
    if check.status in results.GREEN:
        return None
    return code_of(f"check/{check.name}")


def code_of_error(error: results.CaseError) -> Code:
    """Return the code of the reason why a case couldn't be checked."""
    return code_of(f"error/{error.kind}")


def code_of_change(finding: BaselineFinding) -> Code:
    """Return the code of a difference from the baseline."""
    return code_of(f"baseline/{finding.change}")


def find_code(text: str) -> Code | None:
    """Return the code that somebody typed: `GC102`, `gc102`, `102` or `linearity`."""
    query = text.strip().lower()
    names = {code.name: code for code in CODES}
    names |= {code.number.lower(): code for code in CODES}
    names |= {code.number[2:]: code for code in CODES}
    return names.get(query.replace("-", "_"))


def page_of(code: Code) -> str:
    """Return a code's page in Markdown, with its heading first."""
    return _pages()[str(code)]


def link_of(code: Code) -> str:
    """Return the web address of a code's page, if the package says where its documentation is."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        urls = metadata("gradcheck-cli").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    anchor = f"{code.number}-{code.name}".lower()
    documentation_urls = [url.partition(", ")[2] for url in urls if url.lower().startswith("documentation,")]
    return f"{documentation_urls[0].rstrip('/')}/codes.md#{anchor}" if documentation_urls else ""


@lru_cache(maxsize=1)
def _pages() -> dict[str, str]:
    text = resources.files("gradcheck_cli.reporting").joinpath(PAGES).read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    return {page.partition("\n")[0]: re.sub(r"\n# .*", "", f"## {page}".rstrip()) + "\n" for page in sections}


@dataclass(frozen=True)
class Ignored:
    """The codes, as `GC212`, with which a pair doesn't count."""

    numbers: frozenset[str] = frozenset()

    def mark(self, case: results.CaseResult) -> results.CaseResult:
        """Return a case in which undecided pairs with these codes are `ignored`."""
        if not self.numbers or case.status is not results.Status.INCONCLUSIVE:
            return case
        pairs = tuple(map(self._mark, case.pairs))
        return (
            case
            if pairs == case.pairs
            else replace(case, pairs=pairs, status=results.case_status(pairs, case.checks))
        )

    def _mark(self, pair: results.PairResult) -> results.PairResult:
        code = code_of_pair(pair)
        is_ignored = (
            pair.status is results.Status.INCONCLUSIVE and code is not None and code.number in self.numbers
        )
        return replace(pair, status=results.Status.IGNORED) if is_ignored else pair


def read_ignored(selected: Sequence[str], ignored: Sequence[str]) -> Ignored:
    """Read which codes don't count.

    Args:
        selected: codes and beginnings of codes that count; empty for all. Several may be joined by commas.
        ignored: those of them that don't count.

    Raises:
        UsageError: there is no such code, or it can't be ignored.
    """
    may_be = frozenset(code.number for code in CODES if numbers_may_not_tell(code))
    for text in _split(ignored):
        if not may_be & _numbers(text, "--ignore"):
            shown = min(_numbers(text, "--ignore"))
            raise UsageError(
                f"--ignore: '{text}' always counts; only pairs that are undecided by numbers can be ignored. "
                f"`gradcheck explain {shown}` says how a spec excuses it."
            )
    left_out = {number for text in _split(ignored) for number in _numbers(text, "--ignore")}
    chosen = {number for text in _split(selected) for number in _numbers(text, "--select")}
    return Ignored(may_be & (left_out | (may_be - chosen) if selected else left_out))


def _split(texts: Sequence[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",")]


def _numbers(text: str, option: str) -> frozenset[str]:
    """Return the numbers that begin with a text."""
    fitting = frozenset(code.number for code in CODES if text and code.number.startswith(text.upper()))
    if not fitting:
        raise UsageError(f"{option}: no code begins with '{text}'; `gradcheck explain` lists them.")
    return fitting
