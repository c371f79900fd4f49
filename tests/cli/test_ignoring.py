"""`--ignore`: what may be left out, what always counts, and that nothing of it looks green."""

from dataclasses import replace

import pytest

from gradcheck_cli.errors import UsageError
from gradcheck_cli.reporting.codes import CODES, read_ignored
from gradcheck_cli.results import Status

MAY_BE = {
    "GC200", "GC202", "GC203", "GC204", "GC211", "GC212", "GC213", "GC214", "GC215", "GC216", "GC217",
    "GC219", "GC220", "GC221", "GC222", "GC223",
}  # fmt: skip


@pytest.fixture
def mixed(engine, a_case, a_result):
    """Return a function that sets what is found: op -> status of its pair, and why it is undecided."""

    def find(**found):
        engine.cases = [a_case(op) for op in found]
        engine.results = []
        for op, (status, undecided) in found.items():
            result = a_result(op, status)
            pairs = tuple(replace(pair, undecided=undecided) for pair in result.pairs)
            engine.results.append(replace(result, pairs=pairs))

    return find


PASS, WRONG, ERROR = (Status.PASSED, ""), (Status.MISMATCHED, ""), (Status.ERROR, "")
NOISE, JUMP, ZERO = ((Status.INCONCLUSIVE, why) for why in ("noise", "jump", "all_zero"))


@pytest.mark.parametrize(
    ("options", "ignored"),
    [
        ("", set()),
        ("--ignore GC212", {"GC212"}),
        ("--ignore gc212", {"GC212"}),
        ("--ignore GC212,GC215 --ignore GC216", {"GC212", "GC215", "GC216"}),
        ("--ignore GC21", MAY_BE - {"GC200", "GC202", "GC203", "GC204", "GC220", "GC221", "GC222", "GC223"}),
        ("--ignore GC2", MAY_BE),
        ("--ignore GC", MAY_BE),
    ],
)
def test_what_is_left_out(options, ignored):
    assert read_ignored(options.split()[1::2]).numbers == ignored


@pytest.mark.parametrize("code", [code.number for code in CODES if code.number not in MAY_BE])
def test_all_other_codes_always_count(code):
    assert read_ignored(["GC2"]).numbers.isdisjoint({code})
    with pytest.raises(UsageError, match=rf"{code}' always counts.*gradcheck explain {code}"):
        read_ignored([code])


@pytest.mark.parametrize("text", ["GC999", "noise", "", "GC212,,GC213", "212", "GC2*"])
def test_a_code_that_doesnt_exist_is_refused(invoke, engine, text):
    result = invoke("run", "--ignore", text)
    assert result.code == 2
    assert "--ignore: no code begins with" in result.err
    assert "cases" not in engine.asked


@pytest.mark.parametrize(
    ("found", "options", "end"),
    [
        ({"a": PASS, "b": NOISE}, "", (3, "1 passed, 1 inconclusive")),
        ({"a": PASS, "b": NOISE}, "--ignore GC212", (0, "1 passed, 1 ignored")),
        ({"a": PASS, "b": NOISE, "c": JUMP}, "--ignore GC212", (3, "1 passed, 1 inconclusive, 1 ignored")),
        # What is wrong, couldn't be checked or wasn't tested counts whatever is ignored beside it.
        ({"a": WRONG, "b": NOISE}, "--ignore GC2", (1, "1 mismatched, 1 ignored")),
        ({"a": WRONG, "b": PASS}, "--ignore GC2", (1, "1 passed, 1 mismatched")),
        ({"a": ERROR, "b": PASS}, "--ignore GC2", (3, "1 passed, 1 error")),
        ({"a": ZERO, "b": PASS}, "--ignore GC2", (3, "1 passed, 1 inconclusive")),
        # If nothing is left, nothing was tested.
        ({"a": NOISE}, "--ignore GC212", (3, "1 ignored")),
    ],
)
def test_what_counts(invoke, mixed, found, options, end):
    code, words = end
    mixed(**found)
    result = invoke("run", *options.split())
    assert result.code == code, result.out
    assert words in result.out.splitlines()[-1] or words in result.out.splitlines()[-2]
    assert ("nothing was tested" in result.out) == (found == {"a": NOISE} and bool(options))


@pytest.mark.feature  # the page
def test_reports_call_it_ignored(invoke, mixed, tmp_path):
    mixed(a=PASS, b=NOISE)
    files = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "markdown", "html", "sarif")}
    reports = [word for kind, file in files.items() for word in ("--report", f"{kind}={file}")]
    assert invoke("run", "--ignore", "GC212", *reports).code == 0
    texts = {kind: file.read_text() for kind, file in files.items()}
    assert '"ignored": 1' in texts["json"]
    assert '"status": "ignored"' in texts["json"]
    assert "<skipped" in texts["junit"]
    assert texts["markdown"].startswith("### ⚠️ gradcheck: all right but 1 pair ignored")
    assert "<h1>all right but 1 pair ignored</h1>" in texts["html"]
    assert '<header class="partly">' in texts["html"]
    assert "GC212" not in texts["sarif"]
