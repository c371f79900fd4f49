"""The house: a file's name says where it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import gradcheck_cli


def test_no_file_name_occurs_in_two_packages():
    files = Path(gradcheck_cli.__file__).parent.rglob("*.py")
    names = Counter(file.name for file in files if file.name not in {"__init__.py", "__main__.py"})
    assert [name for name, count in names.items() if count > 1] == []
