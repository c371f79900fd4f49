"""A report as a flat list of findings, for JUnit, GitHub, Markdown, SARIF and the pages.

It decides nothing: whether a finding fails the run follows from the report's own exit code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from gradcheck_cli import visible
from gradcheck_cli.gate import BaselineFinding, Change, CoverageStatus
from gradcheck_cli.reporting import codes
from gradcheck_cli.reporting.terminal.pair_table import number_cells, worst_element
from gradcheck_cli.results import (
    FAILING,
    GREEN,
    UNDECIDED,
    CaseResult,
    CheckResult,
    Counterexample,
    PairResult,
    Policy,
    Report,
    SearchResult,
    Status,
    find_unchecked,
)


class Outcome(Enum):
    """What a finding means for the run, the gravest first."""

    FAILED = "failed"  # exit 1
    UNDECIDED = "undecided"  # exit 3
    WARNED = "warned"
    SKIPPED = "skipped"  # or ignored
    PASSED = "passed"


# Kinds of errors that are corrected in the spec, or start there.
_ABOUT_THE_SPEC = frozenset({"import", "attribute", "op_type", "outputs", "values", "pairs"})
_IN_THE_CODE = frozenset({Change.DRIFTED, Change.GRADIENT, Change.BROKE})
_REPRODUCE = "reproduce: "
_BAD = (Outcome.FAILED, Outcome.UNDECIDED)
BAD = frozenset(_BAD)
_LONGEST_LINE = 9  # digits; Python refuses to read thousands of them


@dataclass(frozen=True)
class Finding:
    """One statement of a report, about a pair, a check, an error, a warning, or the run."""

    # its kind, a stable word: "mismatched", "error/import", "check/linearity", "precision",
    # "baseline/drifted", "unchecked", ...
    rule: str
    outcome: Outcome  # what it means for the run
    name: str  # its subject within the case: a pair's label, `check linearity`, `case`
    title: str  # one line
    text: str = ""  # the details, in several lines; may be empty
    place: str = ""  # where to look, "path:line" or a path, as the report names it; empty if there is none
    case: CaseResult | None = None  # the case it belongs to
    pair: PairResult | None = None  # the pair it is about

    @property
    def file(self) -> str:
        """The file to look at; empty if there is none."""
        return split_place(self.place)[0]

    @property
    def line(self) -> int:
        """The line in it, 1-based; 0 for the whole file."""
        return split_place(self.place)[1]

    @property
    def code(self) -> codes.Code | None:
        """Its code; `None` for what passed."""
        if self.pair is not None:
            return codes.code_for(self.pair)
        return None if self.rule == "search" else codes.code_of(self.rule)

    @property
    def headline(self) -> str:
        """The title, with the code that `gradcheck explain` takes."""
        return self.title if self.code is None else f"{self.title} ({self.code.number})"

    @property
    def case_name(self) -> str:
        """`op · case · dtype · mode`, without default values; empty if there is no case."""
        return "" if self.case is None else name_of(self.case)


def findings_of(report: Report) -> tuple[Finding, ...]:
    """Return everything that a report found, case by case, then the findings about the whole run."""
    findings: list[Finding] = []
    unchecked = {id(case) for case in find_unchecked(report.cases, is_part=report.shard is not None)}
    for case in report.cases:
        strict = report.policy.strict or id(case) in unchecked
        findings += findings_of_case(case, report.policy, strict=strict)
    cases = {case.mode_key: case for case in report.cases}
    findings += [_finding_of_change(finding, cases.get(finding.key[:4])) for finding in report.baseline]
    findings += _findings_of_coverage(report)
    unchecked_texts = list(report.unchecked)
    if report.interrupted:
        unchecked_texts.append("interrupted: cases that hadn't ended weren't checked")
    findings += [Finding("unchecked", Outcome.UNDECIDED, "run", text, text) for text in unchecked_texts]
    return tuple(findings)


def sort_by_gravity(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings, the gravest first."""
    return sorted(findings, key=lambda finding: list(Outcome).index(finding.outcome))


def group_alike(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return findings with those together that say the same of several cases, as of a missing module."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        said = [line for line in finding.text.splitlines() if not line.startswith(_REPRODUCE)]
        key = (id(finding),) if finding.pair else (finding.outcome, finding.headline, *said)
        groups.setdefault(key, []).append(finding)
    return list(groups.values())


SPEC_COLUMNS = ("spec", "cases", "failed", "undecided", "passed", "seconds")


def summarize_specs(report: Report, findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    """Return what was found in each file of specs, as `SPEC_COLUMNS`; that with the most failures first."""
    counts: dict[str, Counter[Outcome]] = {case.file: Counter() for case in report.cases}
    for finding in findings:
        if finding.case is not None and finding.rule != "search":
            counts[finding.case.file][finding.outcome] += 1
    rows = []
    for spec in sorted(counts, key=lambda spec: (*(-counts[spec][outcome] for outcome in _BAD), spec)):
        seconds = [case.ran.duration_s for case in report.cases if case.file == spec]
        numbers = (counts[spec][outcome] for outcome in (*_BAD, Outcome.PASSED))
        shown = (f"{number:,}" if number else "-" for number in numbers)
        rows.append((spec, f"{len(seconds):,}", *shown, f"{sum(seconds):.2f}"))
    return rows


def name_of(case: CaseResult) -> str:
    """Return `op · case · dtype · mode`, without default values."""
    return join_name(*case.mode_key)


def placed_name_of(case: CaseResult) -> str:
    """Return its file before what `name_of` returns, once."""
    return f"{case.file} · {join_name(case.op, *case.key[1:], case.mode)}"


def join_name(op: str, case: str, dtype: str, mode: str) -> str:
    """Return `op · case · dtype · mode`, without default values."""
    usual = {"default", "float64", "graph"}
    return " · ".join([op, *(part for part in (case, dtype, mode) if part not in usual)])


def split_place(text: str) -> tuple[str, int]:
    """Split `path:line`; the line is 0 if there is none."""
    path, _, line = text.rpartition(":")
    return (path, int(line)) if path and line.isdecimal() and len(line) <= _LONGEST_LINE else (text, 0)


def path_from_root(file: str, root: Path) -> str:
    """Return a file's path relative to the repository's root, with `/`; unchanged if it lies outside."""
    path = Path(file)
    try:
        return (Path.cwd() / path).resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path.as_posix()


def findings_of_case(case: CaseResult, policy: Policy, *, strict: bool) -> Iterator[Finding]:
    """Yield what is said of a case; `strict`: whether what was skipped counts."""
    for pair in case.pairs:
        yield _finding_of_pair(case, pair, strict=strict)
    for check in case.checks:
        if check.status not in GREEN:
            yield _finding_of_check(case, check, strict=strict)
    if case.error is not None:
        text = "\n".join([case.error.message, *case.error.traceback, *_reproduce(case)])
        title = f"{case.error.kind}: {first_line(case.error.message)}"
        about_spec = case.error.kind in _ABOUT_THE_SPEC or not case.seen.source
        place = _place_in_traceback(case.error.traceback) or (case.spec if about_spec else case.seen.source)
        yield Finding(f"error/{case.error.kind}", Outcome.UNDECIDED, "case", title, text, place, case)
    if case.search is not None and case.search.found is None:
        text = search_summary(case.search)
        yield Finding("search", Outcome.PASSED, "search", text, text, case.spec, case)
    for warning in case.warnings:
        outcome = Outcome.FAILED if policy.strict_precision else Outcome.WARNED
        text = warning.removeprefix("precision: ")
        title = f"precision: {first_line(text)}"
        yield Finding("precision", outcome, "precision", title, text, case.seen.source or case.spec, case)


def _outcome_of(status: Status, *, strict: bool) -> Outcome:
    if status in FAILING:
        return Outcome.FAILED
    if status in UNDECIDED or (strict and status is Status.SKIPPED):
        return Outcome.UNDECIDED
    if status is Status.KNOWN:
        return Outcome.WARNED
    return Outcome.SKIPPED if status in (Status.SKIPPED, Status.IGNORED) else Outcome.PASSED


def _finding_of_pair(case: CaseResult, pair: PairResult, *, strict: bool) -> Finding:
    outcome = _outcome_of(pair.status, strict=strict)
    note = f": {pair.note}" if pair.note else ""
    text = ""
    if outcome is not Outcome.PASSED:
        lines = [*pair_lines(pair), *counterexample_lines(case, pair), *_reason(case), *_reproduce(case)]
        text = "\n".join(lines)
    title = f"{pair.label} {pair.status.words}{note}"
    return Finding(str(pair.status), outcome, pair.label, title, text, _place_of(case, outcome), case, pair)


def pair_lines(pair: PairResult) -> list[str]:
    """Describe a pair that isn't right in the terminal's words, as lines."""
    lines = []
    error, allowed, ratio = number_cells(pair)
    if allowed not in {"", "-"}:
        lines.append(f"off by {error}, allowed {allowed}, ratio {ratio}")
    if pair.numbers.worst is not None:
        lines.append("worst: {}: {}, {}".format(*worst_element(pair, pair.numbers.worst)))
    lines += [f"diagnosis: {diagnosis}" for diagnosis in pair.cause.diagnosis]
    return [*lines, pair.message] if pair.message else lines


def counterexample_lines(case: CaseResult, pair: PairResult) -> list[str]:
    """Return where a search found a pair to be wrong, and what it tried, one line each."""
    if case.search is None or case.search.found is None or pair.status is not Status.MISMATCHED:
        return []
    return [search_summary(case.search), *inputs_of(case.search.found)]


def _place_of(case: CaseResult, outcome: Outcome) -> str:
    """Return the gradient's place if it is wrong and its place is known, else the spec's."""
    return case.seen.source if outcome is Outcome.FAILED and case.seen.source else case.spec


def _finding_of_check(case: CaseResult, check: CheckResult, *, strict: bool) -> Finding:
    outcome = _outcome_of(check.status, strict=strict)
    title = f"check {check.name} {check.status.words}"
    text = "\n".join([check.message or title, *_reason(case), *_reproduce(case)])
    name, place = f"check {check.name}", _place_of(case, outcome)
    return Finding(f"check/{check.name}", outcome, name, title, text, place, case)


def _finding_of_change(finding: BaselineFinding, case: CaseResult | None) -> Finding:
    name = join_name(*finding.key[:4])
    outcome = Outcome.FAILED if finding.is_failure else Outcome.PASSED
    where = f"{name} · {finding.pair}"
    place = finding.spec  # for something that was deleted, this is all that is left
    if case is not None:
        about_code = finding.change in _IN_THE_CODE and case.seen.source
        place = case.seen.source if about_code else case.spec
    text = f"{where}: {finding.message}"
    return Finding(
        f"baseline/{finding.change}", outcome, where, f"{where}: {finding.change.words}", text, place
    )


def _findings_of_coverage(report: Report) -> Iterator[Finding]:
    if report.branches_fall_short:
        for case in report.cases:
            never = [branch.label(side) for branch in case.seen.branches for side in branch.unseen]
            if never:
                first = next(branch for branch in case.seen.branches if branch.unseen)
                title, text = f"{len(never)} sides of branches never seen", f"never: {', '.join(never)}"
                yield Finding("unseen", Outcome.UNDECIDED, "branches", title, text, first.place, case)
    if report.coverage is None:
        return
    outcome = Outcome.UNDECIDED if report.coverage.falls_short else Outcome.WARNED
    for gradient in report.coverage.gradients:
        if gradient.status is CoverageStatus.MISSING:
            title = f"{gradient.name}: not covered"
            # A function inside another can't be named: its spec builds it by the outer one.
            target = gradient.name.partition(".<locals>")[0]
            text = f"{title}: {gradient.reason}; `gradcheck init {target}` writes a spec to start from"
            message = text if gradient.line else f"{title}: {gradient.reason}"
            place = f"{gradient.file}:{gradient.line}"
            yield Finding("uncovered", outcome, gradient.name, title, message, place)


def _reason(case: CaseResult) -> list[str]:
    return [f"reason: {case.how.reason}"] if case.how.reason else []


def _reproduce(case: CaseResult) -> list[str]:
    return [f"{_REPRODUCE}{case.ran.reproduce}"] if case.ran.reproduce else []


def first_line(text: str) -> str:
    """Return a message's first line."""
    return text.partition("\n")[0]


def _place_in_traceback(frames: tuple[str, ...]) -> str:
    """Return the place of the innermost of the user's own frames, from `path:line: in function`."""
    for frame in reversed(frames):
        head, _, rest = frame.partition(": in ")
        if rest and split_place(head)[1] and not frame.startswith(" "):
            return head
    return ""


def search_summary(search: SearchResult) -> str:
    """Say what a search tried, and whether it found anything."""
    if search.refused:
        return f"search: this case isn't searched: {search.refused}"
    text = (
        f"search: {visible.count(search.points, 'point')} in {search.seconds:.0f} s, {search.judged} judged, "
        f"sides {search.seen} of {search.sides}, largest disagreement {search.largest:.1e}"
    )
    if search.spoilt:
        text += f", a gradient not finite at {search.spoilt}"
    return f"{text}: {'nothing found' if search.found is None else 'found'}"


def inputs_of(example: Counterexample) -> list[str]:
    """Return each input of a counterexample with its value: `x = [4.0, 0.0]`."""
    return [f"{name} = {value}" for name, value in example.inputs]
