"""Flat tensors to a forward's arguments, and what it returns to flat tensors."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend import frames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradcheck_cli.spec.case import Case


def grouped(case: Case, tensors: Sequence[Any]) -> list[Any]:
    """Return flat tensors as forward's positional arguments: lists put together again."""
    values = iter(tensors)
    arguments: list[Any] = []
    for argument in case.arguments:
        if argument.tensors and argument.tensors[0].is_variable:
            continue
        taken = list(itertools.islice(values, len(argument.tensors)))
        arguments.append(taken if argument.is_list else taken[0])
    return arguments


def flat_outputs(result: Any, role: str) -> list[Any]:
    """Return what a function returned as a flat list of tensors.

    Raises:
        CaseFailedError: of kind "outputs": something in it is no tensor.
    """
    flat = tf.nest.flatten(result)
    if not flat or any(value is None for value in flat):
        raise CaseFailedError(
            "outputs",
            f"{role}: must return tensors, but returned {type(result).__name__}; return each output.",
        )
    tensors = []
    for value in flat:
        if isinstance(value, tf.IndexedSlices):
            tensors.append(tf.convert_to_tensor(value))
            continue
        try:
            tensors.append(tf.convert_to_tensor(value))
        except (TypeError, ValueError) as error:
            raise CaseFailedError(
                "outputs",
                f"{role}: must return tensors, but returned a {type(value).__name__} "
                f"({frames.first_line(error)}).",
            ) from error
    return tensors
