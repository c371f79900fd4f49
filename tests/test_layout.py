"""The house: names say where a file is, the package keeps to its budget, and an exception has its reason."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import gradcheck_cli

PACKAGE = Path(gradcheck_cli.__file__).parent
ROOT = PACKAGE.parent
DOCS = ROOT / "docs"
FILES = sorted(PACKAGE.rglob("*.py"))
LAYOUT = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.COMMENT,
}
BEFORE_A_STATEMENT = {None, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
MOST_PRIVATE_NAMES = 30  # of the package, in all tests
OF_OTHERS = {
    "_call",
    "_captured",
    "_replace",
    "_repr_html_",
}  # in these files, which name TensorFlow's and Python's
FILES_OF_OTHERS = {"test_left_out.py", "test_path.py", "walk.py", "test_check_function.py"}
# Where tests know a private name, and why nothing public would do.
KNOWS_PRIVATE_NAMES = {
    "test_batching.py": "which of three ways a batch goes changes no value",
    "test_blame.py": "an op that evaluates to nothing finite, in the middle of a path",
    "test_changed.py": "a limit of 10 files, not of thousands",
    "test_chosen_points.py": "a judge that may evaluate next to nothing",
    "test_configured.py": "the keys that a command takes are asked of the command",
    "test_failures.py": "exceptions that break whoever looks at them, without TensorFlow",
    "test_fork_server.py": "the folder of a server that is killed",
    "test_html.py": "cells of a figure whose page needs a browser",
    "test_init.py": "drafting that has no time left",
    "test_ledger.py": "a limit that a text states is that of the code",
    "test_main.py": "an interrupt that reached the process, without one",
    "test_limits.py": "control groups of another machine",
    "test_probing.py": "what a search would find if it never probed unseen columns",
    "test_pytest_plugin.py": "a pair that opening the case hadn't shown",
    "test_search_ends.py": "a function that takes long, by a clock that doesn't",
    "test_single_element.py": "an entry that has no time",
    "test_spoiling.py": "64 MiB that nobody allocates",
    "test_work.py": "a clock that stands still",
}
SAY_NOTHING = {"found", "given", "known", "one"}  # what was found? Name that.


def functions():
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield file.relative_to(PACKAGE), node


def test_no_file_name_occurs_in_two_packages():
    names = Counter(file.name for file in FILES if file.name not in {"__init__.py", "__main__.py"})
    assert [name for name, count in names.items() if count > 1] == []


def code_tokens(file):
    """Count tokens as a parser sees them: no comments, docstrings, line ends or indentation.

    Python 3.12 and later split an f-string; it counts as one token, as in those before.
    """
    count, depth, before = 0, 0, None
    for token in tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline):
        is_docstring = token.type == tokenize.STRING and before in BEFORE_A_STATEMENT
        count += token.type not in LAYOUT and not is_docstring and not depth
        depth += {"FSTRING_START": 1, "FSTRING_END": -1}.get(tokenize.tok_name[token.type], 0)
        before = before if token.type in {tokenize.COMMENT, tokenize.NL} else token.type
    return count


def test_the_package_keeps_to_its_budget():
    page = (DOCS / "decisions" / "0099-a-budget-of-code-tokens.md").read_text(encoding="utf-8")
    budget = int(re.findall(r"^\| ([\d,]+) \|", page, re.MULTILINE)[-1].replace(",", ""))
    assert sum(map(code_tokens, FILES)) <= budget


def test_variables_say_of_what_they_are():
    empty = {
        f"{file}:{node.name}: {name}"
        for file, node in functions()
        for part in ast.walk(node)
        if (name := part.arg if isinstance(part, ast.arg) else getattr(part, "id", "")) in SAY_NOTHING
    }
    assert empty == set()


def test_each_waiver_has_its_reason():
    waivers = [
        f"{file.relative_to(PACKAGE)}: {waiver}"
        for file in FILES
        for waiver in re.findall(r"# noqa[^\n]*", file.read_text(encoding="utf-8"))
    ]
    assert [waiver for waiver in waivers if not re.search(r"# noqa: [A-Z0-9, ]+ \(.+\)$", waiver)] == []


def private_names(file):
    """Return the names in a test that begin with an underscore and are the package's."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and named(node) == "self"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and named(node) not in {"self", "cls"}:
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gradcheck_cli"):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
            names = [part.value for part in node.args if isinstance(part, ast.Constant)]
        else:
            continue
        for name in map(str, names):
            if name.startswith("_") and not name.startswith("__") and name not in own:
                yield name


def named(node):
    return getattr(node.value, "id", "")


def test_tests_know_few_private_names_and_say_why():
    defined = set()
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                defined.add(getattr(node, "id", "") or node.attr)
    known = {
        (file.name, name)
        for file in (ROOT / "tests").rglob("*.py")
        for name in private_names(file)
        if name in defined and not (name in OF_OTHERS and file.name in FILES_OF_OTHERS)
    }
    assert {file for file, _ in known} <= KNOWS_PRIVATE_NAMES.keys()
    assert len(known) <= MOST_PRIVATE_NAMES, sorted(known)


def test_only_files_that_say_so_rely_on_tensorflows_private_parts():
    others = [file for file in FILES if not file.name.startswith("private_")]
    imports = re.compile(r"^\s*(from|import) tensorflow\.python", re.MULTILINE)
    assert [file.name for file in others if imports.search(file.read_text(encoding="utf-8"))] == []


def test_each_decision_that_is_named_has_its_page():
    pages = {int(file.name[:4]) for file in (DOCS / "decisions").glob("0*.md")}
    texts = [*FILES, *DOCS.rglob("*.md"), *(ROOT / "tests").rglob("*.py")]
    named = {
        (file.name, int(number))
        for file in texts
        for number in re.findall(r"\bdecisions?\s+(\d+)", file.read_text(encoding="utf-8"))
    }
    assert len(named) > len(pages)
    assert {(name, number) for name, number in named if number not in pages} == set()


def test_a_link_to_a_decision_has_its_number():
    link = re.compile(r"\bdecision\s+(\d+)\]\((?:\.\./)?(?:decisions/)?(\d{4})-")
    links = [pair for file in DOCS.rglob("*.md") for pair in link.findall(file.read_text(encoding="utf-8"))]
    assert links
    assert [pair for pair in links if int(pair[0]) != int(pair[1])] == []


def test_each_file_that_the_guides_name_is_there():
    files = [f"/{file.as_posix()}" for folder in (PACKAGE, ROOT / "tests") for file in folder.rglob("*.py")]
    guides = [*(DOCS / "decisions").glob("*.md"), DOCS / "architecture.md", DOCS / "contributing.md"]
    missing = {
        (guide.name, path)
        for guide in guides
        for path in re.findall(r"`([\w/]+\.py)\b", guide.read_text(encoding="utf-8"))
        if not any(file.endswith(f"/{path}") for file in files)
        and not re.search("NAME|FAMILY", path)  # stand for any
    }
    assert missing == set()


def test_what_the_table_of_changes_names_in_a_file_is_there():
    page = (DOCS / "contributing.md").read_text(encoding="utf-8")
    named = re.findall(r"`(\w+)` (?:and words )?in `([\w/]+\.py)`", page)
    assert named
    missing = {
        (name, path)
        for name, path in named
        for file in FILES
        if file.as_posix().endswith(f"/{path}")
        and not re.search(rf"\b{name}\b", file.read_text(encoding="utf-8"))
    }
    assert missing == set()


def test_what_a_docstring_refers_to_is_there():
    members = {}
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in FILES]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for node in classes:
        members.setdefault(node.name, set()).update(members_of(node))
    referred = {
        pair
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        for pair in re.findall(r"`(\w+)\.(\w+)`", ast.get_docstring(node) or "")
        if pair[0] in members
    }
    assert referred
    assert {(name, member) for name, member in referred if member not in members[name]} == set()


def members_of(node):
    """Return the names of a class's fields, methods and attributes."""
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef):
            yield part.name
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
        elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            yield part.attr
