"""Optional packages: each module is imported without them, and one sentence names the extra."""

import re
import subprocess
import sys
from importlib.metadata import requires

import pytest

from gradcheck_cli import optional
from gradcheck_cli.errors import UsageError

# Each of these modules is about one package, and `optional.load` or pytest imports it.
ABOUT_A_PACKAGE = {
    "gradcheck_cli.features.cluster.dask_task": "distributed",
    "gradcheck_cli.features.cluster.dask_workers": "distributed",
    "gradcheck_cli.features.page.pictures": "matplotlib",
    "gradcheck_cli.features.pytest.pytest_plugin": "pytest",
}
# Imports every module, where nothing is installed but what the package requires without extras.
IMPORT_ALL = """
import pkgutil, sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

plain, waiting = set(), ["gradcheck-cli"]
while waiting:
    name = canonical(waiting.pop())
    if name not in plain:
        plain.add(name)
        try:
            needs = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue
        waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]

class Absent:
    names = {
        module for module, owners in packages_distributions().items()
        if not plain & {canonical(owner) for owner in owners} and not module.startswith("gradcheck")
    }
    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

assert {"matplotlib", "pytest", "distributed"} <= Absent.names, Absent.names
sys.meta_path.insert(0, Absent())
import gradcheck_cli
for module in pkgutil.walk_packages(gradcheck_cli.__path__, "gradcheck_cli."):
    try:
        import_module(module.name)
    except ModuleNotFoundError as error:
        print(module.name, error.name)
"""


def test_modules_import_without_extras():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert dict(line.split() for line in done.stdout.splitlines()) == ABOUT_A_PACKAGE


def test_each_extra_brings_its_package():
    brought = {
        (re.split(r"[><=;]", line)[0].strip().replace("-", "_"), extra[1])
        for line in requires("gradcheck-cli")
        if (extra := re.search(r"extra == ['\"](\w+)['\"]", line))
    }
    assert set(optional.EXTRAS.items()) <= brought


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("No module"), 'isn\'t installed: pip install "gradcheck-cli[dask]"'),
        (ImportError("built for another Python"), "can't be imported: built for another Python"),
    ],
)
def test_what_is_lacking_has_one_sentence(monkeypatch, error, told):
    def refuse(_):
        raise error

    monkeypatch.setattr(optional, "import_module", refuse)
    with pytest.raises(UsageError) as failure:
        optional.load("somewhere", "--on", "distributed")
    assert str(failure.value) == f"--on needs distributed, which {told}"


def test_a_package_of_somebody_elses_has_no_extra():
    assert optional.describe_missing("it", "jax") == "it needs jax, which isn't installed"
