"""Settings of a `tf.custom_gradient`, such as the 4 of `quantize(x, bits=4)`: Python values, no tensors."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.custom_gradient import Bind

from gradcheck_cli.errors import CaseFailedError
from gradcheck_cli.tensorflow_backend.private.private_gradients import (
    custom_gradient_under,
    is_pair,
    keep_site,
)
from gradcheck_cli.tensorflow_backend.private.private_graphs import replace_attributes

NOT_ZERO = "the gradient for the setting"  # begins the message about one that isn't


@contextlib.contextmanager
def bind_settings(function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Iterator[None]:
    """Let the custom gradient of a function that is called in the block keep its settings as they are.

    A setting is an argument without a tensor in it, such as 4 or "same". In a graph, TensorFlow refuses it by
    keyword, and else makes a tensor of it. Here the custom gradient is made anew around the settings. What
    its gradient function returns for them is taken off, if it returns something, and must be `None` or zero.

    Args:
        function: nothing is changed if it isn't a custom gradient.
        arguments: those that it is called with by position.
        keywords: those that it is called with by name.
    """
    own = custom_gradient_under(function)
    names = set() if own is None else _names_of_settings(function, arguments, keywords)
    if own is None or not names:
        yield
        return
    target, call = getattr(own._f, "__func__", own._f), Bind.__call__

    def call_bound(self: Any, *args: Any, **keyed: Any) -> Any:
        if getattr(self._f, "__func__", self._f) is not target:
            return call(self, *args, **keyed)
        slots = _Slots.of(self._f, args, keyed, names)
        bound = slots.bind(self._f)
        keep_site(target, bound)
        return call(Bind(bound, self._d), *slots.tensors(), **slots.keyed_tensors())

    # AutoGraph would convert it.
    with replace_attributes(Bind, __call__=tf.autograph.experimental.do_not_convert(call_bound)):
        yield


def _has_tensor(value: Any) -> bool:
    kinds = (np.ndarray, np.generic, tf.Variable)
    return any(
        tf.is_tensor(leaf) or isinstance(leaf, kinds) or type(leaf).__module__.startswith("keras.")
        for leaf in tf.nest.flatten(value)
    )


def _names_of_settings(function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> set[str]:
    try:
        by_name = inspect.signature(function).bind(*arguments, **keywords).arguments
    except (TypeError, ValueError):  # the call itself will say so
        return set()
    return {name for name, value in {**by_name, **keywords}.items() if not _has_tensor(value)}


@dataclass(frozen=True)
class _Slot:
    """One argument by position of a custom gradient."""

    name: str
    value: Any
    is_given: bool
    is_setting: bool

    def count(self, *, as_one: bool) -> int:
        """Count the gradients for it: TensorFlow counts one for each number of a list."""
        return 1 if self.is_setting and as_one else len(tf.nest.flatten(self.value))


@dataclass(frozen=True)
class _Slots:
    """The arguments of a call of a custom gradient, settings apart from tensors."""

    slots: tuple[_Slot, ...]
    keyed: Mapping[str, Any]

    @classmethod
    def of(cls, function: Any, args: Sequence[Any], keyed: Mapping[str, Any], names: set[str]) -> _Slots:
        bound = inspect.signature(function).bind(*args, **keyed)
        passed = set(bound.arguments)
        bound.apply_defaults()
        slots: list[_Slot] = []
        for name, parameter in bound.signature.parameters.items():
            if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
                continue
            value, is_many = bound.arguments[name], parameter.kind is parameter.VAR_POSITIONAL
            is_setting = name not in passed or (name in names and not _has_tensor(value))
            parts = value if is_many else (value,)
            slots += [_Slot(name, part, name in passed, is_setting) for part in parts]
        return cls(tuple(slots), bound.kwargs)

    def tensors(self) -> list[Any]:
        return [slot.value for slot in self.slots if not slot.is_setting]

    def keyed_tensors(self) -> dict[str, Any]:
        return {name: value for name, value in self.keyed.items() if _has_tensor(value)}

    def bind(self, function: Any) -> Any:
        """Return the function of the tensors alone."""

        def bound(*tensors: Any, **keyed: Any) -> Any:
            left = iter(tensors)
            args = [slot.value if slot.is_setting else next(left) for slot in self.slots]
            result = function(*args, **{**self.keyed, **keyed})
            if not is_pair(result):
                return result  # TensorFlow says what is wrong with it
            return result[0], self._of_tensors(result[1])

        bound.__name__ = getattr(function, "__name__", "bound")
        bound.__wrapped__ = function  # type: ignore[attr-defined]
        return bound

    def _of_tensors(self, gradient: Any) -> Any:
        """Return a gradient function without what it returns for settings."""

        def taken(*upstreams: Any, **keyed: Any) -> Any:
            returned = gradient(*upstreams, **keyed)
            if keyed and is_pair(returned):
                return self._take_off(returned[0]), returned[1]
            return self._take_off(returned)

        taken.__signature__ = inspect.signature(gradient)  # type: ignore[attr-defined]
        return taken

    def _take_off(self, returned: Any) -> Any:
        gradients = tf.nest.flatten(returned)
        if len(gradients) == len(tf.nest.flatten(self.tensors())):
            return returned
        for has_defaults, as_one in itertools.product((False, True), (False, True)):
            slots = [slot for slot in self.slots if slot.is_given or has_defaults]
            owners = [slot for slot in slots for _ in range(slot.count(as_one=as_one))]
            if len(owners) == len(gradients):
                return _without_settings(owners, gradients)
        return returned  # TensorFlow says how many it wants


def _without_settings(owners: Sequence[_Slot], gradients: Sequence[Any]) -> list[Any]:
    """Return the gradients for tensors, once those for settings are known to be zero."""
    pairs = [*zip(owners, gradients, strict=True)]
    checks = [check for slot, value in pairs if slot.is_setting for check in _require_zero(slot, value)]
    asserted = [tf.debugging.Assert(is_zero, [message]) for is_zero, message in checks]
    with tf.control_dependencies(asserted):
        return [
            # XLA leaves assertions out: then they are NaN.
            tf.where(tf.reduce_all([is_zero for is_zero, _ in checks]), value, tf.cast(np.nan, value.dtype))
            if checks and isinstance(value, tf.Tensor)
            else value
            for slot, value in pairs
            if not slot.is_setting
        ]


def _require_zero(slot: _Slot, gradient: Any) -> list[tuple[Any, str]]:
    """Require that the gradient for a setting is `None` or zero; return what a graph's run must show.

    Raises:
        CaseFailedError: it is known not to be.
    """
    if gradient is None:
        return []
    # Without apostrophes, which TensorFlow escapes.
    message = (
        f"{NOT_ZERO} {slot.name} must be None or zero, but is not: a setting is not differentiated. Return "
        f"None for it, or make it an input: {slot.name}: {{value: {slot.value!r}}}."
    )
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else tf.convert_to_tensor(gradient)
    static = tf.get_static_value(values)
    if static is None:
        return [(tf.reduce_all(tf.equal(values, tf.zeros_like(values))), message)]
    if np.any(static != 0):
        raise CaseFailedError("gradient", message)
    return []
