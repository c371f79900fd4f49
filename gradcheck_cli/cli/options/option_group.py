"""Groups of options: a command takes their values as one object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

Function = TypeVar("Function", bound="Callable[..., Any]")


def option_group(name: str, kind: type, *options: Callable[[Function], Function]) -> Callable[..., Any]:
    """Return a decorator that adds options to a command, and passes their values as one object.

    Args:
        name: the parameter of the command's function that takes the object.
        kind: the object's class, a dataclass. Its fields have the names of the options' parameters.
        options: the results of `click.option`, in the order of the help text.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **values: Any) -> Any:  # noqa: ANN401 (click's own)
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            return function(*arguments, **values)

        for option in reversed(options):
            call = option(call)
        return call

    return decorate
