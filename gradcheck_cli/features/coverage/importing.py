"""Imports every module of a package in a separate process, and records the custom gradients that this makes.

That process may crash, hang, exit or print. The run continues in parallel, and learns which modules can't be
imported. A gradient that is made by a decorator of an unknown name is seen only here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from gradcheck_cli import serial
from gradcheck_cli.gate import GradientRun
from gradcheck_cli.serial import TypeFault
from gradcheck_cli.visible import clean

_PATIENCE = 600.0  # seconds for all of them: the largest packages take one minute


@dataclass
class Imported:
    """The result of importing modules: why some can't be imported, and what custom gradients were made."""

    failures: dict[str, str] = field(default_factory=dict)
    made: list[GradientRun] = field(default_factory=list)


class Importing:
    """The process that imports modules; it starts at once."""

    def __init__(self, modules: Sequence[str], folders: Sequence[str]) -> None:
        self._modules, self._folders = list(modules), list(folders)
        self._imported = Imported()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> Imported:
        """Wait for it to end, and return what was found."""
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            for module in self._modules:
                self._imported.failures.setdefault(module, f"wasn't imported within {_PATIENCE:.0f} s")
        return self._imported

    def _run(self) -> None:
        """Import the remaining modules, in a new process after each crash."""
        while self._modules:
            began = ""
            for begins, content in self._lines():
                if begins:
                    began = begins
                    continue
                self._modules.remove(began)
                if content.get("failure"):
                    self._imported.failures[began] = clean(str(content["failure"]))
                with suppress(TypeFault):  # other code wrote to our pipe
                    self._imported.made += serial.read(tuple[GradientRun, ...], content.get("made"))
                began = ""
            if not began and self._modules:  # it never reached a first module
                self._imported.failures |= dict.fromkeys(
                    self._modules, "the process that imports it can't start"
                )
                return
            if began:
                self._modules.remove(began)
                self._imported.failures[began] = "the process ends as it is imported"

    def _lines(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield the name of each module when it begins, then its result with an empty name."""
        reading, writing = os.pipe()
        command = [sys.executable, "-m", __name__, str(writing)]
        request = json.dumps({"modules": self._modules, "folders": self._folders})
        with subprocess.Popen(  # noqa: S603 (our own module)
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[writing],
            text=True,
        ) as process:
            os.close(writing)
            if process.stdin is not None:
                process.stdin.write(request)
                process.stdin.close()
            with os.fdopen(reading, encoding="utf-8") as stream:
                for line in stream:
                    content = json.loads(line)
                    yield str(content.get("begins", "")), content


def _main() -> None:
    """Import the modules named on standard input, and write to the descriptor in the arguments."""
    request = json.loads(sys.stdin.read())
    from gradcheck_cli.running.session import start_tensorflow

    start_tensorflow(threads=1)
    from gradcheck_cli.tensorflow_backend import frames, startup
    from gradcheck_cli.tensorflow_backend.binding import behaviour
    from gradcheck_cli.tensorflow_backend.private.private_sites import GradientLog, note_sites

    sys.path[:0] = request["folders"]
    with os.fdopen(int(sys.argv[1]), "w", buffering=1, encoding="utf-8") as stream, startup.settings():
        for module in request["modules"]:
            stream.write(json.dumps({"begins": module}) + "\n")
            log, failure = GradientLog(), ""
            try:
                with note_sites(log):
                    behaviour.import_module(module)
            except BaseException as error:  # noqa: BLE001 (a script without a guard may exit)
                failure = frames.first_line(error)
            made = serial.plain([site.as_run() for site in log.made])
            stream.write(json.dumps({"failure": failure, "made": made}) + "\n")
    os._exit(0)  # threads that modules have started don't delay it


if __name__ == "__main__":
    _main()
