"""Run on the device that a case asks for, or say that it isn't there."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import tensorflow as tf

from gradcheck_cli.errors import CaseSkippedError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def on_device(device: str | None) -> Iterator[None]:
    """Place what is traced and run within, and what is traced within, on a device.

    Args:
        device: such as "GPU:0"; `None` leaves it to TensorFlow.

    Raises:
        CaseSkippedError: this machine has no such device.
    """
    if device is None:
        yield
        return
    found = [one.name.removeprefix("/device:") for one in tf.config.list_logical_devices()]
    if device not in found:
        raise CaseSkippedError(
            "device", f"TensorFlow finds no {device} on this machine; it has {', '.join(found)}."
        )
    # A function's ops take the device of where it is called. Soft placement, TensorFlow's default, runs an op
    # elsewhere that the device has no kernel for.
    with tf.device(f"/device:{device}"):
        yield
