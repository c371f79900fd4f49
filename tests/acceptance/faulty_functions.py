"""Forwards that harm the process they run in, and good ones that stand between them; for `test_workers`."""
# ruff: noqa: T201, S607, NPY002 (users do such things)

import ctypes
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf


def square(x):
    return x * x


def sensitive(x):
    """Return right values only where nothing that another spec did to its process shows."""
    assert Path("here.txt").exists(), "the working directory is another one"
    assert "FAULTY" not in os.environ, "an environment variable is left over"
    assert not hasattr(np, "faulty"), "a module has been patched"
    assert "faulty_functions" in sys.modules
    assert tf.random.get_global_generator is not None
    return x * x * x


def segfault(x):
    print("about to read address 0")
    ctypes.string_at(0)
    return x


def exit_at_once(x):
    print("leaving")
    os._exit(3)
    return x


def abort(x):
    os.abort()
    return x


def kill_itself(x):
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def spin_in_python(x):
    print("spinning", flush=True)
    while time.time() > 0:
        pass
    return x


def loop_in_c(x):
    re.fullmatch(r"(a+)+b", "a" * 64)  # takes 2**64 steps, in C, without letting go of the interpreter
    return x


def allocate(x):
    return x + float(np.ones(100 * 2**27)[0])


def allocate_in_tensorflow(x):
    return x + tf.reduce_sum(tf.ones([100 * 2**27], tf.float64))


def creep(x):
    held = []
    while len(held) < 10_000:
        held.append(np.ones(2**23))
    return x + held[0][0]


def print_much(x):
    line = "x" * 99
    for _ in range(100):
        print("\n".join([line] * 10_000))
    return x * x


def print_much_and_crash(x):
    print_much(x)
    print("the last words")
    os._exit(4)


def system_exit(x):
    raise SystemExit(7)


def keyboard_interrupt(x):
    raise KeyboardInterrupt


def fork_and_return(x):
    os.fork()
    return x * x


def leave_daemons(x):
    subprocess.Popen(["sleep", "600"])
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    return x * x


def change_everything(x):
    os.chdir("/")
    os.environ["FAULTY"] = "1"
    np.faulty = True
    random.seed(1)
    np.random.seed(1)
    tf.random.set_seed(1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return x * x


def delete_its_module(x):
    del sys.modules["faulty_functions"]
    return x * x


def kill_its_parent(x):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
    return x


def close_everything(x):
    os.closerange(0, 100)
    return x * x


def sleep(x):
    Path("sleeping").touch()
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    time.sleep(600)
    return x


def leave_a_note(x):
    Path("noted").touch()
    return x * x


def choose(x, how):
    return globals()[how](x)


CASES = set()


def be_alone(x, case):
    """Fail where another case has been checked in this process."""
    CASES.add(case)
    assert len(CASES) == 1, "another case was here"
    return x * x


def talk(x):
    print("all is well")
    return x * x


def talk_and_fail(x):
    print("all is not well")
    raise ValueError("on purpose")
