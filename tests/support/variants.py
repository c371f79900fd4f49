"""Rows of functions with several gradients each, read from text.

```
softplus (x=(-3.0, 0.5)) = tf.nn.softplus(x)
    right: u * tf.sigmoid(x)
    wrong_sign: -u * tf.sigmoid(x)
```

The first line has a name, the inputs and the function; deeper lines go on. Then come gradients by name, of
the upstream `u` and the inputs; the first word of a name says what is true. `None` is TensorFlow's own.
`keys` and `reference` are those of a spec. Numbers in brackets are a shape, in parentheses they are values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from tests.support.row import Row

TRUTHS = {"right": "right", "wrong": "wrong", "maybe": "undecidable", "open": "not green"}
BOTH = ("float64", "float32")
HALF = ("float16", "bfloat16")
_HEAD = re.compile(r"(?P<name>\w+) \((?P<inputs>.*?)\) = (?P<value>.*)")


def made(value: Callable[..., Any], gradient: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a function with a gradient of upstreams and arguments; without one, with TensorFlow's."""
    if gradient is None:
        return value

    def call(*arguments: Any) -> Any:
        @tf.custom_gradient
        def inner(*taken: Any) -> Any:
            return value(*taken), lambda *upstream: gradient(*upstream, *taken)

        return inner(*arguments)

    return call


def of(**sizes: Any) -> dict[str, Any]:
    """Return a spec's inputs: of a shape (a list), of values (a tuple), or as they are (a mapping)."""
    forms = {list: "shape", tuple: "value"}
    return {
        name: size if isinstance(size, Mapping) else {forms[type(size)]: _as_list(size)}
        for name, size in sizes.items()
    }


def _as_list(value: Any) -> Any:
    return [_as_list(one) for one in value] if isinstance(value, (list, tuple)) else value


def rows_of(
    text: str,
    known: dict[str, Any],
    *,
    make: Callable[..., Any] = made,
    upstream: str = "u, ",
    dtypes: tuple[str, ...] = BOTH,
    **keys: Any,
) -> Iterator[Row]:
    """Yield a row for each gradient of a text.

    Args:
        known: the names that the text uses.
        make: makes the op of a function and a gradient.
        upstream: the gradient's first argument.
        dtypes: of the inputs.
        keys: what else the specs say.
    """
    lines = re.sub(r"\n {8}", " ", text).strip().splitlines()

    def evaluate(code: str) -> Any:
        return eval(code, known)  # noqa: S307 (the repository's own text)

    for line in lines:
        if found := _HEAD.fullmatch(line):
            head = found
            inputs = evaluate(f"dict({head['inputs']})")
            taken = ", ".join(inputs)
            stated, functions = {"dtypes": list(dtypes), **keys}, {}
            value = evaluate(f"lambda {taken}: {head['value']}")
            continue
        word, code = line.strip().split(": ", 1)
        if word == "keys":
            stated |= evaluate(code)
        elif word == "reference":
            stated["reference"] = "of_a_row:reference"
            functions["reference"] = evaluate(f"lambda {taken}: {code}")
        else:
            gradient = None if code == "None" else evaluate(f"lambda {upstream}{taken}: {code}")
            truth = TRUTHS[word.split("_")[0]]
            op = make(value, gradient)
            yield Row(
                f"{head['name']}_{word}", op, None, of(**inputs), truth, keys=stated, functions=functions
            )


def with_slope(value: Callable[..., Any], slope: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a function of single numbers, from its slope."""
    return made(value, slope and (lambda u, x: u * slope(x)))
