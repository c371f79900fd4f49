"""Entry points of other packages: found, refused where they clash, and never a reason to be green."""

import sys
from types import SimpleNamespace

import pytest

from gradcheck_cli import hooks as module
from gradcheck_cli.checking.verdicts.summary import Findings
from gradcheck_cli.errors import UsageError
from gradcheck_cli.hooks import CHECKS, extensions
from gradcheck_cli.results import Status
from gradcheck_cli.running.session import run_own_checks


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs a package with entry points of the group of checks."""

    def install(code, points, name="mine"):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        lines = [f"{key} = {value}" for key, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{CHECKS}]", *lines]) + "\n")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (tmp_path / f"{name}_checks.py").write_text(code)

    monkeypatch.syspath_prepend(tmp_path)
    module.extensions.cache_clear()
    yield install
    module.extensions.cache_clear()
    for name in [name for name in sys.modules if name.endswith("_checks") and "." not in name]:
        del sys.modules[name]


def own_checks():
    judged = SimpleNamespace(
        opener=SimpleNamespace(case="case"), findings=Findings(operations=SimpleNamespace(declared="op"))
    )
    run_own_checks(judged)
    return judged.findings.checks


def test_a_check_that_raises_is_an_error(installed):
    installed("def bad(case, op): raise ValueError('no')\n", {"bad": "mine_checks:bad"})
    (found,) = own_checks()
    assert found.status is Status.ERROR
    assert found.message == "the check itself raised ValueError: no"


def test_two_of_one_name_are_refused(installed):
    installed("def a(case, op): ...\n", {"same": "mine_checks:a"})
    installed("def a(case, op): ...\n", {"same": "other_checks:a"}, "other")
    with pytest.raises(UsageError, match=r"entry point 'same' of gradcheck\.checks is there twice"):
        extensions(CHECKS)


def test_one_that_can_not_be_imported_is_said(installed):
    installed("import nothing_of_that_name\n", {"broken": "mine_checks:a"})
    with pytest.raises(UsageError, match=r"'broken' .* mine_checks:a, can't be imported: No module named"):
        extensions(CHECKS)
