"""Modules are imported in a process of their own: what crashes, exits or raises there is named."""

import pytest

from gradcheck_cli.features.coverage.measure import Importing

pytestmark = pytest.mark.once

MODULES = {
    "good.py": """
import tensorflow as tf
print("printed")

def under(f):
    def forward(x):
        return f(x), lambda dy: dy
    return tf.custom_gradient(forward)

@under
def identity(x):
    return x
""",
    "raises.py": "raise ValueError('no GPU')\n",
    "leaves.py": "import os; os._exit(7)\n",
    "stops.py": "raise SystemExit(1)\n",
    "late.py": "import good\n",
}


def test_each_module_has_its_outcome(tmp_path):
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    found = Importing(["raises", "leaves", "good", "stops", "late"], [str(tmp_path)]).result()
    assert found.failures == {
        "raises": "ValueError: no GPU",
        "leaves": "the process ends as it is imported",
        "stops": "SystemExit: 1",
    }
    # A decorator of any name shows as it makes a gradient; a module that is there already makes none again.
    (made,) = found.made
    assert made.function == "good:under.<locals>.forward"
    assert [place.rpartition("/")[2] for place in made.places] == ["good.py:6", "good.py:10"]
    lines = [place.rpartition("/")[2] for place in made.makers][:2]
    assert lines in (["good.py:8", "good.py:10"], ["good.py:8", "good.py:11"])  # Python 3.10 names the def
