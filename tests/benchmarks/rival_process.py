"""Talk to the checkers of other libraries, each in a process of its own; one may not be installed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec

import numpy as np


class RivalProcess:
    """One library's checker; use it as a context manager.

    Attributes:
        name: torch or jax.
        version: the library's; empty where it isn't installed.
    """

    def __init__(self, name):
        self.name = name
        self.version = ""
        self._process = None

    def __enter__(self):
        if find_spec(self.name) is None:
            return self
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.rival_functions", self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.version = self._answer()["version"]
        return self

    def __exit__(self, *_):
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()

    @property
    def installed(self):
        return self._process is not None

    def load(self, name, values):
        """Give it the values of a function's inputs, in order."""
        with tempfile.NamedTemporaryFile(suffix=".npz") as file:
            np.savez(file, **{f"{name}/{number}": value for number, value in enumerate(values)})
            file.flush()
            self._ask({"load": file.name})

    def check(self, name, mode=""):
        """Return the seconds that a check takes, and whether it passed."""
        answer = self._ask({"function": name, "mode": mode})
        return answer["seconds"], answer["passed"]

    def _ask(self, request):
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.name} ended; what it said stands above")
        return json.loads(line)
