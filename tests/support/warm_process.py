"""A process that has imported TensorFlow and forks one for each command: the import costs seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[2]


class WarmProcess:
    """Runs command lines, each in a process of its own, in which TensorFlow is imported and hasn't run."""

    def __init__(self):
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        left_out = ("TF_", "COLUMNS", "NO_COLOR", "FORCE_COLOR")
        given = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**given, "PYTHONPATH": path},
        )

    def __call__(self, *arguments, cwd):
        """Run `gradcheck` with arguments in a folder; return what `subprocess.run` would."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            order = {"argv": [*map(str, arguments)], "cwd": str(cwd), "streams": [str(out), str(err)]}
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            return SimpleNamespace(returncode=code, stdout=out.read_text(), stderr=err.read_text())

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _serve():
    from gradcheck_cli.tensorflow_backend import startup

    startup.load()
    startup.load_engine()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(**json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 (to whoever asked)


def _run(argv, cwd, streams):
    from gradcheck_cli.cli.main import main
    from gradcheck_cli.tensorflow_backend import startup

    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, name in enumerate(streams, 1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), descriptor)
    os.chdir(cwd)
    sys.path[0] = cwd  # as `python -m` has it
    sys.argv = ["gradcheck", *argv]
    code = 1
    try:
        startup.run_first_op()
        main()
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
