"""The program's entry: Ctrl-C works from the first moment, and no foreign module is imported."""

import sys

if __name__ == "__main__":
    # `python -m` puts the working folder first, so a `json.py` there would replace Python's own. The code of
    # specs is searched there later, after everything that gradcheck needs has been imported.
    sys.path.append(sys.path.pop(0))

import os
import signal

_INTERRUPTED = 130  # 128 + SIGINT


def _leave(_number: int, _frame: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(_INTERRUPTED)


def main() -> None:
    """Run the command line; Ctrl-C while modules are imported gives no traceback."""
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, _leave)
    from gradcheck_cli.cli.main import main as run

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
