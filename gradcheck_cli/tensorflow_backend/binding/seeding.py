"""Seed the global generators while user code builds a layer: initial weights are part of the point."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from gradcheck_cli.tensorflow_backend.private import private_eager, private_variables

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def seed_globals(seed: int) -> Iterator[None]:
    """Seed the global generators of Python (which Keras uses), NumPy and TensorFlow; restore them afterwards.

    Keras starts counting the names of its layers again, so that a variable has the same name in every mode.
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (the global one, as users use it)
    with private_eager.restore_seed(), private_variables.reset_keras_names():
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 (as above)
        tf.random.set_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002 (as above)
