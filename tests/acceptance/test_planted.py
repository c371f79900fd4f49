"""Every planted fault is found, and named by pair and element; every correct function is left alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.acceptance.acceptance_root import ROOT

FOLDER = ROOT / "tests" / "planted"


def planted():
    """(file, op's name, description, a spec of this op alone) of every planted op."""
    for file in sorted(FOLDER.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            defaults = document.get("defaults", {})
            for op in document["ops"]:
                description = op.get("description", defaults.get("description"))
                yield file.name, op["op"], description, {"defaults": defaults, "ops": [op]}


OPS = list(planted())
# What the issue asks to be found, by what it's called here.
ASKED = {
    "factor": "dy/dx",
    "sign": "dy/dx",
    "transpose": "dy/da",
    "one_element": "dy/dx",
    "no_broadcast_sum": "dy/dbias",
    "no_conjugate": "dy/da",
    "ignored_upstream": "",
    "swapped": "dy/da",
    "nan": "dy/dx",
    "none": "dy/dx",
}


@pytest.fixture
def check(tmp_path, monkeypatch, report):
    """Return a function that runs one planted op by the command line."""
    monkeypatch.chdir(FOLDER)  # its functions are beside it

    def run(name):
        (spec,) = [spec for _, op, _, spec in OPS if op == name]
        file = tmp_path / "spec.yaml"
        file.write_text(yaml.safe_dump(spec, sort_keys=False))
        return report(file, tmp=tmp_path)

    return run


def test_names_are_unique_and_every_op_says_what_must_be_found():
    names = [op for _, op, _, _ in OPS]
    assert len(set(names)) == len(names)
    known = ("passed", "passed|inconclusive", "mismatched", "error", "inconclusive")
    assert {description.partition(" ")[0] for _, _, description, _ in OPS} <= set(known)
    assert set(ASKED) <= set(names)


@pytest.mark.on_change(
    "blamed-closing_over",
    "blamed-large_inside",
    "blamed-rounding",
    "broken-module_missing",
    "broken-module_raises",
    "broken-attribute_missing",
    "broken-not_callable",
    "broken-forward_raises",
    "broken-forward_raises_numpy",
    "broken-op_type_missing",
    "broken-outputs_too_many",
    "broken-output_shape",
    "broken-output_dtype",
    "broken-pair_missing",
    "broken-input_nan",
    "correct-reduce_max_tie",
    "correct-top_k",
    "correct-tanh_dtypes",
    "correct-matmul_dtypes",
    "correct-autograph_for",
    "correct-zero_size",
    "correct-concat",
    "correct-keras_dense",
    "found_by_readers-wrong_in_float32_alone",
    "found_by_readers-clipped_at_ten_thousand",
    "found_by_readers-strings_only",
    "missed_overrides-other_op_type",
    "missed_overrides-partly_hidden",
    "structures-right_dataclass",
    "structures-wrong_beside_integers",
    "structures-unknown_nonzeros",
    "unseen_gradients-covered_expected",
    "wrong_form-wrong_shape_numpy",
    "wrong_form-gradient_raises_numpy",
    "wrong_in_a_mode-known_batch",
    "wrong_in_a_mode-one_function",
    "wrong_twice-mixed",
    "wrong_values-nan",
    "wrong_values-wrong_branch",
    "wrong_values-factor_defun",
    "wrong_values-cached_residual",
    "wrong_values-real_part",
    "wrong_values-no_broadcast_sum",
)
@pytest.mark.parametrize(
    ("file", "op", "description"),
    [row[:3] for row in OPS],
    ids=[f"{file.removesuffix('.yaml')}-{op}" for file, op, _, _ in OPS],
)
def test_what_is_planted_is_found(check, file, op, description):
    done = check(op)
    word, _, rest = description.partition(" ")
    cases = done.report["cases"]
    assert cases
    codes = {"passed": 0, "mismatched": 1, "error": 3, "inconclusive": 3}
    if "|" in word:
        assert {case["status"] for case in cases} <= set(word.split("|"))
        assert done.code in (0, 3)
    else:
        assert {case["status"] for case in cases} == {word}
        assert done.code == codes[word]
    assert "Traceback" not in done.out + done.err
    for case in cases:
        statuses = {pair["label"]: pair["status"] for pair in case["pairs"]}
        if word == "error":
            assert case["error"]["kind"] == rest
            assert re.search(rf"ERROR GC3\d\d  {rest}: ", done.out)
        elif rest:
            assert statuses[rest] == word
        if file == "correct.yaml" or word == "passed":
            assert "mismatched" not in statuses.values()
            assert case["error"] is None


@pytest.mark.on_change("one_element", "no_conjugate", "nan")
@pytest.mark.parametrize("name", ASKED)
def test_the_table_names_pair_and_element(check, name):
    done = check(name)
    label = ASKED[name]
    assert done.code == 1
    lines = done.out.splitlines()
    assert any(line.startswith("    reproduce: gradcheck run ") for line in lines)
    if not label:  # no pair is at fault, but the gradient as a function of its upstream
        assert any(line.split()[:3] == ["check", "linearity", "MISMATCH"] for line in lines)
        return
    rows = [line for line in lines if line.startswith(f"  {label} ")]
    assert rows
    assert all("MISMATCH" in row for row in rows)
    if name != "no_broadcast_sum":  # which has another shape: no element to name
        output, _, taken = label.partition("/")
        # Of a complex tensor the part is named, too.
        element = re.compile(
            rf"    worst: (re |im )?{output[1:]}\[[\d,]*\] / (re |im )?{taken[1:]}\[[\d,]*\]"
        )
        assert any(element.match(line) for line in lines)
        assert any("analytic" in line for line in lines)
        assert any("numeric" in line for line in lines)


def test_the_whole_folder_goes_on_after_what_can_not_be_checked(tmp_path, monkeypatch, report):
    # broken.yaml holds a fault of every kind; a good spec behind it still runs.
    monkeypatch.chdir(FOLDER)
    good = tmp_path / "good.yaml"
    good.write_text("{op: good, forward: 'tensorflow:tanh', inputs: {x: {shape: [2]}}}")
    done = report("broken.yaml", good, tmp=tmp_path)
    assert done.code == 3
    assert [case["status"] for case in done.report["cases"]][-1] == "passed"
    assert len(done.report["cases"]) == len([row for row in OPS if row[0] == "broken.yaml"]) + 1


def test_the_report_is_the_table(check):
    done = check("factor")
    (case,) = done.report["cases"]
    (pair,) = case["pairs"]
    assert pair["worst"]["analytic"] == pytest.approx(1.001 * pair["worst"]["numeric"], rel=1e-6)
    assert f"{pair['max_abs_error']:.3e}" in done.out
    assert Path(case["spec"].rpartition(":")[0]).name == "spec.yaml"
    json.dumps(done.report, allow_nan=False)
