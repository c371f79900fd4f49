"""`python -m tests.benchmarks.core_figures`: how large the core of the verdict is, in a few figures."""

from __future__ import annotations

import ast
import inspect
import os
import sys
import tempfile
import threading
from dataclasses import fields
from pathlib import Path

from gradcheck_cli import results
from gradcheck_cli.checking.ops import operation
from gradcheck_cli.checking.pairs import pair
from gradcheck_cli.cli.main import run_command
from gradcheck_cli.numerics.judge import Judgement
from gradcheck_cli.spec import case

PACKAGE = Path(results.__file__).parent
DECIDING = ("checking", "numerics")
RECORDS = (
    case.Case,
    case.CodeUnderTest,
    case.Expected,
    case.Judging,
    case.Running,
    case.Origin,
    case.Wanted,
    Judgement,
    pair.PairSample,
    results.PairResult,
    results.CaseResult,
    operation.Operation,
    operation.OpForms,
    operation.Operations,
)


OP = """
import tensorflow as tf

@tf.custom_gradient
def passing(x):
    y = tf.tanh(x)
    return y, lambda dy: dy * (1 - y * y)

@tf.custom_gradient
def failing(x):
    y = tf.tanh(x)
    return y, lambda dy: dy * (1 - y)
"""


def entered(name):
    """Return the files with a function that `gradcheck run` calls for one pair of three elements."""
    files = set()

    def note(frame, event, _):
        # A class body is a call, too, and so is a comprehension: importing a file isn't entering it.
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_NEWLOCALS and not code.co_name.startswith("<"):
            files.add(code.co_filename)

    text = f"op: {name}\nforward: one_op:{name}\ninputs: {{x: {{shape: [3]}}}}\n"
    Path(f"{name}.yaml").write_text(text, encoding="utf-8")
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        run_command(["run", "-q", "-j", "0", "--cache-dir", os.devnull, f"{name}.yaml"])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {file for file in files if file.startswith(f"{PACKAGE}{os.sep}")}


def trees(*folders):
    """Yield each module of some folders of the package with its syntax tree."""
    for folder in folders:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def numbers():
    """Return the names at module level that stand for numbers, or for tables of numbers."""
    found = []
    for path, tree in trees(*DECIDING):
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            constants = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            is_text = any(isinstance(value, str) and " " in value for value in constants)
            has_number = any(type(value) in {int, float} for value in constants)
            if names and names[0].isupper() and has_number and not is_text:
                found.append(f"{path.relative_to(PACKAGE)}:{names[0]}")
    return found


def verdict_sites():
    """Return where verdicts are written: calls with a `verdict=` that isn't another record's own."""
    return [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path, tree in trees("checking")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "verdict"
    ]


def main():
    """Print the figures."""
    lines = {
        folder: sum(len(path.read_text(encoding="utf-8").splitlines()) for path, _ in trees(folder))
        for folder in (*DECIDING, "tensorflow_backend", "features", "")
    }
    for folder, count in lines.items():
        sys.stdout.write(f"lines of {folder or 'the package'}: {count}\n")
    for record in RECORDS:
        sys.stdout.write(f"fields of {record.__name__}: {len(fields(record))}\n")
    facts = [name for name in vars(operation.OpFacts) if not name.startswith("_")]
    sys.stdout.write(f"facts of an op: {len({*facts, *operation.OpFacts.__annotations__})}\n")
    sys.stdout.write(f"numbers at module level in what decides: {len(numbers())}\n")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("one_op.py").write_text(OP, encoding="utf-8")
        for name in ("passing", "failing"):
            sys.stdout.write(f"files that a {name} pair enters: {len(entered(name))}\n")
        os.chdir(PACKAGE)  # the folder goes
    sys.stdout.write(f"sites at which a verdict is written: {', '.join(verdict_sites())}\n")


if __name__ == "__main__":
    main()
