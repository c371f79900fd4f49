import re
import shlex
import subprocess
from dataclasses import replace

import pytest

from gradcheck_cli.reporting.report_text import case_lines, failed_lines, render_report, summary_lines
from gradcheck_cli.reporting.terminal import layout
from gradcheck_cli.results import CheckResult, Report, Status, WorstElement
from tests.support.flat_results import altered, make_pair

AT_80 = """\
specs/seeds/sparse_conv.yaml · sparse_conv_2layer · float64 · graph       0.41 s
  pair               error   allowed     ratio  verdict
  dM1/dM0        1.890e-13   1.0e-08   1.9e-05  pass
  dt1/dM0     disconnected                      pass  as expected
specs/huber.yaml · huber
    float32 (numeric: float64) · graph · case wide                        0.05 s
  check linearity  MISMATCH GC102
    vjp(2 u) isn't 2 vjp(u)
  pair               error   allowed     ratio  verdict
  dy/dx          2.000e-03   1.0e-06   2.0e+03  MISMATCH GC101  3 of 16 elements
    worst: y[2,5] / x[2,5]   analytic 1.000e+00   numeric 9.980e-01 ± 3.1e-09
           off by 0.2 %
    diagnosis: analytic = 1.002 numeric in these elements
    warning GC405: precision: tanh saturates
    reproduce: gradcheck run specs/huber.yaml --case wide --seed 0
specs/broken.yaml · broken · float64 · graph                              0.00 s
  ERROR GC301  import: No module named 'numpi'.
    Searched: specs, /home/me/project
      File "ops.py", line 3, in <module>
        import numpi
    reproduce: gradcheck run specs/broken.yaml --case default --seed 0
3 ops · 3 cases · 3 pairs:
  2 passed, 1 mismatched, 1 error, 1 failed check                          0.9 s
"""


def text_of(case, **options):
    return layout.plain(case_lines(case, **options))


def test_a_report_at_80_columns(report):
    assert render_report(report) == AT_80


GREEN = (Status.PASSED, Status.EXPECTED_MISMATCH)
PROBED = {"miss_probability": 1e-3, "miss_size": 0.01}
ALIKE = WorstElement((0,), (), 1.0001, 1.0, 1e-12)
ILL = WorstElement((), (1,), 1 + 2j, complex("nan"), 1e-12)
# The status of a pair, what else is known of it, and what is printed.
SHOWN = [
    (Status.PASSED, {}, "1.9e-05  pass\n"),
    (Status.PASSED, {"kinks": 2}, "pass  2 kinks\n"),
    (Status.PASSED, PROBED, "pass\n    miss probability 1.0e-03 for 1 % in one element\n"),
    (Status.PASSED, {"elements": 0, "note": "zero-size"}, "  -  pass  zero-size\n"),
    (Status.EXPECTED_MISMATCH, {}, "  expected mismatch GC101\n"),
    (Status.UNEXPECTED_PASS, {}, "UNEXPECTED PASS"),
    (Status.INCONCLUSIVE, {"undecided": "jump"}, "  INCONCLUSIVE GC211\n"),
    (Status.SKIPPED, {}, "skip GC401\n"),
    (Status.MISMATCHED, {"worst": ALIKE}, "M1[0] / M0   analytic 1.0001e+00   numeric 1.0000e+00 ± 1.0e-12"),
    (Status.MISMATCHED, {"worst": ILL}, "nan+0.000e+00j ± 1.0e-12"),
    (Status.ERROR, {"message": "red \x1b[31mtext"}, r"red \x1b[31mtext"),
    (Status.ERROR, {"label": "d\x07y/dx"}, r"d\x07y/dx"),
]


@pytest.mark.parametrize(("status", "changes", "shown"), SHOWN)
def test_a_pair_is_shown_and_what_is_not_green_says_how_to_run_it_again(with_pair, status, changes, shown):
    text = text_of(with_pair(status, **changes))
    assert shown in text
    assert "\x1b" not in text
    assert ("reproduce: gradcheck run" in text) is (status not in GREEN)


@pytest.mark.parametrize("width", [40, 80, 100, 200])
@pytest.mark.parametrize(
    ("case", "options"),
    [("wide", ""), ("wide", " --mode graph --power 0.05:0.02"), ("'two words'", " --seed 7")],
)
def test_the_reproduce_line_is_one_command_for_a_shell(mismatched, width, case, options):
    command = f"gradcheck run specs/{'deeply/nested/' * 8}huber.yaml --case {case} --seed 0{options}"
    text = text_of(altered(mismatched, reproduce=command), width=width)
    shown = re.search(r"    reproduce: (.*\\\n)*.*", text)[0]
    copied = f"printf '%s\n' {shown.partition('reproduce: ')[2]}"
    taken = subprocess.run(["/bin/sh", "-c", copied], capture_output=True, text=True, check=True)
    assert taken.stdout.splitlines() == shlex.split(command)
    if case == "wide":
        assert all(len(line) <= width or "/" in line for line in shown.splitlines())


def test_what_probes_of_many_pairs_may_have_missed_is_said_once(passed):
    pairs = [
        make_pair(
            f"dy/dw{index}", "y", f"w{index}", Status.PASSED, miss_probability=index / 100, miss_size=0.01
        )
        for index in range(9)
    ]
    of_many = replace(passed, pairs=tuple(pairs))
    said = "  miss probability at most 8.0e-02 for 1 % in one element (dy/dw8); -v says each\n"
    assert text_of(of_many).count("miss probability") == 1
    assert said in text_of(of_many)
    assert text_of(of_many, verbose=True).count("miss probability") == 9
    assert text_of(replace(passed, pairs=tuple(pairs[1:]))).count("miss probability") == 8


def test_names_are_not_markup(passed):
    case = altered(passed, op="[bold red]x[/]", case=":smile: [link=http://x]y[/link]")
    text = text_of(case, width=110)
    assert "[bold red]x[/]" in text
    assert ":smile: [link=http://x]y[/link]" in text


def test_the_summary_is_green_only_for_exit_code_zero(passed):
    report = Report("0", "2", "3", 0, (passed,))
    assert "green" in str(summary_lines(report)[0].style)
    assert "red" in str(summary_lines(altered(report, unchecked=("one",)))[0].style)


@pytest.mark.parametrize("width", [64, 65, 72])
def test_tables_fit_the_terminals_width(mismatched, passed, width):
    for case in (altered(mismatched, reproduce=""), passed):
        text = text_of(case, width=width)
        assert max(layout.cells(line) for line in text.splitlines()) <= width, text
        assert all(pair.label in text for pair in case.pairs)
        assert f"{case.pairs[0].numbers.max_abs_error:.3e}" in text


def test_what_several_pairs_have_to_say_is_said_once(passed):
    told = "the bound {} lets any slope through: state a smaller tolerance"
    pairs = [
        make_pair(f"dy/d{name}", "y", name, Status.INCONCLUSIVE, message=told.format(size))
        for name, size in (("a", "1.5e-01"), ("b", "6.7e+00"))
    ]
    other = make_pair("dy/dc", "y", "c", Status.INCONCLUSIVE, message="ops.py:3 jumps; move it")
    case = altered(passed, pairs=(*pairs, other, replace(other, label="dy/dd")))
    text = layout.plain(case_lines(case, width=100))
    assert text.count("state a smaller tolerance") == 1
    assert "    the bound 6.7e+00 lets any slope through (see above)\n" in text
    assert text.count("ops.py:3 jumps; move it") == 2
    blamed = [
        altered(pair, diagnosis=(f"blame: op 'add_{op}'",))
        for pair, op in zip(pairs * 2, (1, 2, 2, 1), strict=True)
    ]
    text = layout.plain(case_lines(altered(passed, pairs=blamed), width=100))
    assert re.findall(r"blame: (.*)", text) == ["op 'add_1'", "op 'add_2'", "see above", "see above"]


def test_what_a_check_says_of_a_pair_fails_once(passed):
    pair = make_pair("dy/dx", "y", "x", Status.MISMATCHED, mismatch="none")
    checks = (CheckResult("connected", Status.MISMATCHED), CheckResult("linearity", Status.MISMATCHED))
    case = altered(passed, status=Status.MISMATCHED, pairs=(pair,), checks=checks)
    lines = layout.plain(failed_lines(Report("0", "2", "3", 0, (case,)), 100)).splitlines()
    assert [line.split(" · ")[-1] for line in lines[1:-1]] == ["dy/dx", "check linearity"]
