"""Import TensorFlow late and quietly: its start-up chatter stays off the user's terminal."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_STDERR = 2
_ENGINE = (
    "numpy.random",
    "gradcheck_cli.tensorflow_backend.binding.loading",
    "gradcheck_cli.tensorflow_backend.devices",
    "gradcheck_cli.tensorflow_backend.opening.openers",
)


def _flush() -> None:
    with suppress(AttributeError, OSError):  # it is None, or closed, where there's no standard error
        sys.stderr.flush()


@contextmanager
def _held_back_stderr() -> Iterator[None]:
    """Hold back what is written to descriptor 2, C++ included; play it back only if the body raises."""
    _flush()
    try:
        saved = os.dup(_STDERR)
    except OSError:  # no standard error at all, as under some daemons: nothing to hold back
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


def load() -> None:
    """Import TensorFlow without its start-up chatter, and run nothing: after this a process may still fork.

    The environment variable alone leaves lines that are written before absl's log is set up, and the
    redirection alone leaves those that come with the first op: both together leave nothing, and lose
    nothing that the user's own code prints later.
    """
    if "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        with _held_back_stderr():
            import tensorflow as tf  # noqa: F401 (the point of this module: late)


def load_engine() -> None:
    """Import what checking a case would import in its course, and run nothing."""
    for name in _ENGINE:
        import_module(name)


def run_first_op(*, threads: int | None = None) -> None:
    """Run the first op, at which TensorFlow looks for devices, and complains of those that aren't there.

    Args:
        threads: how many threads an op, and ops beside each other, may take; default as many as cores. Sums
            are added up in another order by another number, so the last digits depend on it.
    """
    import tensorflow as tf

    with _held_back_stderr():
        if threads is not None:
            with suppress(RuntimeError):  # a process that ran an op before keeps the threads it has
                tf.config.threading.set_intra_op_parallelism_threads(threads)
                tf.config.threading.set_inter_op_parallelism_threads(threads)
        tf.constant(0.0)


def start(*, threads: int | None = None) -> None:
    """Import TensorFlow and run a first op, without its start-up chatter."""
    if "tensorflow" not in sys.modules:
        load()
        run_first_op(threads=threads)


@contextmanager
def settings() -> Iterator[None]:
    """Check under settings of our own, and give TensorFlow back as it was: a notebook goes on with it.

    Its log is silent, since pfor writes an error for each op that it has no converter for, which batching
    handles. Grappler's meta-optimiser is off: it costs 2 s on the first call of a 400-op chain, and rewrites
    arithmetic in ways that would make the graph that is differenced another one than the user's. TF32, by
    which a GPU multiplies float32 with ten bits, is off: differences would show its rounding.
    """
    import tensorflow as tf

    from gradcheck_cli.tensorflow_backend.binding import behaviour

    logger, optimizer = tf.get_logger(), tf.config.optimizer
    level, options = logger.level, optimizer.get_experimental_options()
    experimental = tf.config.experimental
    has_tf32 = experimental.tensor_float_32_execution_enabled()
    experimental.enable_tensor_float_32_execution(enabled=False)
    logger.setLevel(logging.CRITICAL)
    optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        with behaviour.own():
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
