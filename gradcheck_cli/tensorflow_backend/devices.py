"""Runs on the device that a case asks for, or reports that there is none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from gradcheck_cli.errors import CaseSkippedError


@contextlib.contextmanager
def on_device(device: str | None) -> Iterator[None]:
    """Place everything that is traced and run within the block on a device, such as "GPU:0"; or where it is.

    Raises:
        CaseSkippedError: this machine has no such device.
    """
    if device is None:
        yield
        return
    available = [logical.name.removeprefix("/device:") for logical in tf.config.list_logical_devices()]
    if device not in available:
        raise CaseSkippedError(
            "device", f"TensorFlow finds no {device} on this machine; it has {', '.join(available)}."
        )
    # A function's ops run on the device where the function is called. With soft placement, TensorFlow's
    # default, an op runs elsewhere if the device has no kernel for it.
    with tf.device(f"/device:{device}"):
        yield
