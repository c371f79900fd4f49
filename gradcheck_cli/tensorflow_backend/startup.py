"""Imports TensorFlow late and quietly: its start-up messages stay off the user's terminal."""

from __future__ import annotations

import gc
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

from gradcheck_cli.errors import CaseSkippedError

_STDERR = 2
_ENGINE = (
    "numpy.random",
    "gradcheck_cli.tensorflow_backend.users_code",
    "gradcheck_cli.tensorflow_backend.startup",
    "gradcheck_cli.tensorflow_backend.openers",
)


def _flush() -> None:
    with suppress(AttributeError, OSError):  # without a standard error, it is None or closed
        sys.stderr.flush()


@contextmanager
def _hold_back_stderr() -> Iterator[None]:
    """Hold back what is written to descriptor 2, also by C++; print it only if the body raises."""
    _flush()
    try:
        saved = os.dup(_STDERR)
    except OSError:  # no standard error at all, as in some daemons: nothing to hold back
        yield
        return
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), _STDERR)
        try:
            yield
        except Exception:
            os.dup2(saved, _STDERR)
            caught.seek(0)
            os.write(_STDERR, caught.read())
            raise
        finally:
            _flush()
            os.dup2(saved, _STDERR)
            os.close(saved)


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage: an import makes little, and many objects that would be searched in vain."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load() -> None:
    """Import TensorFlow without its start-up messages, and run nothing: after this a process may still fork.

    The environment variable alone leaves the lines that are written before absl's log is set up. The
    redirection alone leaves the lines that come with the first op. Both together leave nothing, and hide
    nothing that the user's own code prints later.
    """
    if "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        with _hold_back_stderr(), without_collections():
            import tensorflow as tf  # noqa: F401 (late imports are the purpose of this module)


def load_engine() -> None:
    """Import and prepare what checking a case would prepare later, and run nothing."""
    from gradcheck_cli import hooks

    for name in _ENGINE:
        import_module(name)
    hooks.load()
    _trace_custom_gradient()


def _trace_custom_gradient() -> None:
    """Convert and trace a custom gradient: TensorFlow keeps what it looks up and makes at the first one.

    AutoGraph converts even TensorFlow's own wrapper of a custom gradient.
    """
    import tensorflow as tf

    from gradcheck_cli.tensorflow_backend.private.private_graphs import call_with_autograph

    keep = tf.custom_gradient(lambda value: (tf.identity(value), lambda upstream: upstream))
    before = tempfile.gettempdir()
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        value = tf.compat.v1.placeholder(tf.float64, [1])
        tempfile.tempdir = folder  # AutoGraph removes the code that it writes at exit, which a kill prevents
        try:
            tf.gradients(call_with_autograph(keep, [value], {}), value)
        finally:
            tempfile.tempdir = before


def run_first_op(*, threads: int | None = None) -> None:
    """Run the first op, when TensorFlow looks for devices and reports missing ones.

    Args:
        threads: how many threads an op, and parallel ops, may use; default: one for each core. The order of
            sums, and so their last digits, depends on this number.
    """
    import tensorflow as tf

    with _hold_back_stderr():
        if threads is not None:
            with suppress(RuntimeError):  # a process that already ran an op keeps its threads
                tf.config.threading.set_intra_op_parallelism_threads(threads)
                tf.config.threading.set_inter_op_parallelism_threads(threads)
        tf.constant(0.0)


def start(*, threads: int | None = None) -> None:
    """Import TensorFlow and run a first op, without its start-up messages."""
    if "tensorflow" not in sys.modules:
        load()
        run_first_op(threads=threads)


@contextmanager
def settings() -> Iterator[None]:
    """Check under our own settings, and restore TensorFlow's afterwards, since a notebook goes on using it.

    TensorFlow's log is off: a `tf.vectorized_map` logs an error for each op that it has no converter for.
    Grappler's meta-optimiser is off: it costs 2 s on the first call of a 400-op chain, and rewrites
    arithmetic, so that the differenced graph wouldn't be the user's. TF32, with which a GPU multiplies
    float32 with ten bits, is off: differences would show its rounding. NumPy neither warns nor raises:
    what isn't finite is data here.
    """
    import numpy as np
    import tensorflow as tf

    from gradcheck_cli import hooks

    logger, optimizer = tf.get_logger(), tf.config.optimizer
    level, options = logger.level, optimizer.get_experimental_options()
    experimental = tf.config.experimental
    has_tf32 = experimental.tensor_float_32_execution_enabled()
    experimental.enable_tensor_float_32_execution(enabled=False)
    logger.setLevel(logging.CRITICAL)
    optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        with hooks.behaviour().own(), np.errstate(all="ignore"):
            yield
    finally:
        logger.setLevel(level)
        experimental.enable_tensor_float_32_execution(has_tf32)
        optimizer.set_experimental_options(
            {"disable_meta_optimizer": options.get("disable_meta_optimizer", False)}
        )


def version() -> str:
    """Return TensorFlow's version."""
    import tensorflow as tf

    return str(tf.__version__)


@contextmanager
def on_device(device: str | None) -> Iterator[None]:
    """Place everything that is traced and run within the block on a device, such as "GPU:0"; or where it is.

    Raises:
        CaseSkippedError: this machine has no such device.
    """
    if device is None:
        yield
        return
    import tensorflow as tf

    available = [logical.name.removeprefix("/device:") for logical in tf.config.list_logical_devices()]
    if device not in available:
        raise CaseSkippedError(
            "device", f"TensorFlow finds no {device} on this machine; it has {', '.join(available)}."
        )
    # A function's ops run on the device where the function is called. With soft placement, TensorFlow's
    # default, an op runs elsewhere if the device has no kernel for it.
    with tf.device(f"/device:{device}"):
        yield
