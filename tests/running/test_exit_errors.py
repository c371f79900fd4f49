import os
import signal
import sys
from pathlib import Path

import pytest

from gradcheck_cli.running import fork_server

STACKS = f"""Fatal Python error: Segmentation fault

Current thread 0x00007f0000000000 (most recent call first):
  File "{sys.base_prefix}/lib/python3/os.py", line 1 in open
  File "{fork_server.__file__}", line 3 in user_frames
  File "{Path(__file__)}", line 4 in inner
  File "<string>", line 1 in <module>
  File "/tmp/__autograph_generated_filexyz.py", line 9 in tf__forward
  File "/somewhere/else.py", line 2 in outer

Extension modules: numpy (total: 1)
"""


def test_the_users_frames_are_those_of_no_library():
    # This file's fourth line is blank: no code beside it.
    frames = fork_server.user_frames(STACKS)
    assert frames[:2] == (
        f"{os.path.relpath('/somewhere/else.py')}:2: in outer",
        "as rewritten by AutoGraph: in forward",
    )
    assert frames[2].endswith("tests/running/test_exit_errors.py:4: in inner")


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (-11, "crash", "the process was killed by signal 11 (SIGSEGV: Segmentation fault)."),
        (-9, "crash", "the process was killed by signal 9 (SIGKILL: Killed)."),
        (-(signal.SIGRTMIN + 1), "crash", f"the process was killed by signal {signal.SIGRTMIN + 1}."),
        (0, "crash", "the process ended with exit code 0, as by os._exit, in the middle of the check."),
    ],
)
def test_how_a_process_died(code, kind, message):
    error = fork_server.error_of_exit(code, ["last words"], "", for_memory=False)
    assert (error.kind, error.message) == (kind, message)


@pytest.mark.parametrize(
    ("code", "line", "for_memory"),
    [(-9, "", True), (-6, "terminate called after throwing an instance of 'std::bad_alloc'", False)],
)
def test_what_is_known_to_be_for_lack_of_memory(code, line, for_memory):
    error = fork_server.error_of_exit(code, [line], "", for_memory=for_memory)
    error = fork_server.with_limit(error, 3 * 2**30)
    assert error.kind == "memory"
    assert error.message.endswith(
        "The process may use 3.0 GiB (--memory). Make the inputs smaller, or give it more."
    )


@pytest.mark.parametrize(
    ("is_beside", "where", "remedy"),
    [
        (False, "", "make the inputs smaller"),
        (True, " at points beside the samples", "say how far inputs go (uniform), for a loop to end"),
    ],
)
def test_a_timeout_says_how_long_and_what_to_do(is_beside, where, remedy):
    assert fork_server.error_of_timeout(2.5, "", is_beside=is_beside).message == (
        f"still running after 2.5 s{where}, and was ended. Allow it longer (timeout in the spec, or "
        f"--timeout), or {remedy}."
    )
