"""Tracebacks reduced to the frames of the user's own code."""

from __future__ import annotations

import contextlib
import functools
import itertools
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gradcheck_cli.checking.ops.operation import GradientFormError
from gradcheck_cli.errors import CaseFailedError, CaseSkippedError
from gradcheck_cli.plain_files import GENERATED, PACKAGES, is_own, is_users, short_path
from gradcheck_cli.tensorflow_backend.private import private_gradients, private_graphs
from gradcheck_cli.visible import shorten

# The standard library's files that occur between gradcheck's frames, where a property is cached or a context
# entered.
_BETWEEN = (contextlib.__file__, functools.__file__)
_BACKEND = str(Path(__file__).parent)

# What passes through where an error of the user's code is named.
OWN_ERRORS = (CaseFailedError, CaseSkippedError, GradientFormError, KeyboardInterrupt)

Frame = TypeVar("Frame")

_END = 20  # lines of a long stack that are shown at either end


def _frame_lines(filename: str, line: int, function: str, code: str) -> list[str]:
    lines = [f"{short_path(filename)}:{line}: in {function}"]
    if code:
        lines.append(f"    {code}")
    return lines


def user_frames(error: BaseException) -> tuple[str, ...]:
    """Return the user's own frames of an exception, outermost first, two lines per frame; the ends of many.

    AutoGraph runs generated code; where it converted a function, its map back to the source is used.
    """
    lines: list[str] = []
    autograph_frames = private_graphs.autograph_frames(error)
    for frame in traceback.extract_tb(error.__traceback__):
        if is_users(frame.filename):
            lines += _frame_lines(frame.filename, frame.lineno or 0, frame.name, (frame.line or "").strip())
        elif not autograph_frames and GENERATED in frame.filename:
            # For some exceptions AutoGraph keeps no map.
            place = private_gradients.source_place(frame.filename, frame.lineno or 0)
            if place is not None and is_users(place[0]):
                code = linecache.getline(*place).strip()
                lines += _frame_lines(*place, private_graphs.CONVERTED.sub("", frame.name), code)
    seen = set(lines)
    for filename, line, function, code in autograph_frames:
        if is_users(filename):
            entry = _frame_lines(filename, line, function or "<lambda>", code)
            if entry[0] not in seen:
                lines += entry
    if len(lines) > 2 * _END:
        lines[_END:-_END] = [f"... ({len(lines) - 2 * _END} more lines, as of a function that calls itself)"]
    return tuple(lines)


@contextlib.contextmanager
def naming_errors(kind: str, what: str, called: str) -> Iterator[None]:
    """Say what of the user's raises in the block; an error that is gradcheck's own stays as it is.

    Args:
        called: how it is called, as `raised` takes it.

    Raises:
        CaseFailedError: of this kind: "WHAT raised TypeError: ...", with the user's own frames.
    """
    try:
        yield
    except OWN_ERRORS:
        raise
    except BaseException as error:  # the user's code may raise anything
        raise CaseFailedError(kind, f"{what} raised {raised(error, called)}", user_frames(error)) from error


def frames_of(op: Any) -> Sequence[Any]:
    """Return the frames of the code that made an op, outermost first; none if it was read from a file."""
    return op.traceback or ()


def describe_imported(op: Any) -> str:
    """Return what stands for the place of an op that was read from a file."""
    return f"imported op {op.name}"


def _since(frames: Sequence[Frame], is_ours: Callable[[Frame], bool]) -> Sequence[Frame]:
    """Return the frames from gradcheck's first one on: the code that calls gradcheck doesn't count.

    All of them count if gradcheck isn't there: an op of a function that was traced before.
    """
    return list(itertools.dropwhile(lambda frame: not is_ours(frame), frames)) or frames


def _sources(frames: Iterable[Any]) -> Iterator[tuple[str, int]]:
    """Yield the line of each frame of an op, in the code that was written, the innermost first."""
    for frame in reversed(list(frames)):
        place = frame.filename, frame.lineno
        yield private_gradients.source_place(*place) or place


def place_in_users_code(op: Any) -> str:
    """Return `file:line` of the user's innermost line that made a graph's op; empty where there is none."""
    places = (f"{short_path(file)}:{line}" for file, line in _sources(frames_of(op)) if is_users(file))
    return next(places, "")


def place_of_branch(op: Any) -> str:
    """Return `file:line` of the line that asked for an op: the user's innermost one, else a library's.

    Empty where only TensorFlow asked for it, as in its own gradients. An op from a file is named.
    """
    frames = frames_of(op)
    if not frames:
        return describe_imported(op)
    library = ""
    # From the backend on, since the command line isn't the user's, either.
    for file, line in _sources(_since(frames, lambda frame: frame.filename.startswith(_BACKEND))):
        if is_users(file):
            return f"{short_path(file)}:{line}"
        is_library = not set(PACKAGES).isdisjoint(Path(file).parts) and not is_own(file)
        if not library and is_library and "/tensorflow/" not in file:
            library = f"{_in_library(file)}:{line}"
    return library


_OPS = "/tensorflow/python/ops/"

# Files that an op's creation passes through after the line that asks for it; nobody looks for these lines.
_MAKING = tuple(
    f"tensorflow/python/{folder}" for folder in ("framework", "util", "eager", "ops/weak_tensor_ops.py")
)


def place_of_stop(frames: Sequence[tuple[str, int, str]]) -> tuple[str, str]:
    """Return the lines that asked for a `stop_gradient`.

    Returns:
        All of these lines, which identify it in another trace of the same forward. And the line to show: the
        user's innermost one, or a library's if there is none.
    """
    lines = []
    for file, line, function in _since(frames, lambda frame: is_own(frame[0])):
        if is_users(file) or not (
            is_own(file)
            or file in _BETWEEN
            or "stop_gradient" in function
            or any(map(file.__contains__, _MAKING))
        ):
            lines.append(private_gradients.source_place(file, line) or (file, line))
    users = [place for place in lines if is_users(place[0])]
    in_files = [place for place in lines if not place[0].startswith("<") and GENERATED not in place[0]]
    candidates = users or [place for place in in_files if "/tensorflow/" not in place[0]] or in_files
    if not candidates:
        return "an unknown line", "an unknown line"
    file, line = candidates[-1]
    chain = " < ".join(f"{file}:{line}" for file, line in reversed(lines))
    return chain, f"{short_path(file) if users else _in_library(file)}:{line}"


def _in_library(file: str) -> str:
    """Return a library's file without the folder that libraries are installed in."""
    parts = Path(file).parts
    positions = [position for position, part in enumerate(parts) if part in PACKAGES]
    return str(Path(*parts[positions[-1] + 1 :])) if positions else file


_RUNTIME_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$')


def runtime_frames(message: str) -> tuple[str, ...]:
    """Return the user's frames from the traceback text that `py_func` puts into a runtime error."""
    lines: list[str] = []
    text = message.splitlines()
    for position, line in enumerate(text):
        match = _RUNTIME_FRAME.match(line)
        if match and is_users(match["file"]):
            code = text[position + 1].strip() if position + 1 < len(text) else ""
            entry = _frame_lines(match["file"], int(match["line"]), match["function"].strip(), code)
            if entry[0] not in lines:
                lines += entry
    return tuple(lines)


_NAMED_ERROR = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Warning): ")


# Keras prints the message itself in bold, below the place where the error was raised.
_IN_KERAS = "Exception encountered when calling"
_BOLD = re.compile(r"\x1b\[\d*m")


def text_of(error: BaseException) -> str:
    """Return an exception's text. The user's code may make it, so it may raise, or not be text."""
    try:
        return str(getattr(error, "message", "") or error)
    except BaseException as another:  # noqa: BLE001 (whatever the user's `__str__` raises)
        return f"(it has no text: its __str__ raised {type_name(another)})"


def type_name(value: object) -> str:
    """Return the name of a value's type, even if its metaclass hides or replaces `__name__`."""
    return str(type.__dict__["__name__"].__get__(type(value)))


def original_error(error: BaseException) -> BaseException:
    """Return the exception that code raised, even if another one was raised when its text was requested."""
    raised_in = traceback.extract_tb(error.__traceback__)
    if raised_in and raised_in[-1].name in {"__str__", "__repr__"} and error.__context__ is not None:
        return original_error(error.__context__)
    return error


def first_line(error: BaseException) -> str:
    """Return `Type: first line` of an exception, shortened, without what TensorFlow puts around it."""
    return shorten(_first_line(error))


_OF_TENSORS = (
    "It is called as (op, *upstream); for one of arrays, (*upstream, *inputs), write "
    "'gradient: {numpy: module:function}'."
)
_OF_ARRAYS = (
    "It is called as (*upstream, *inputs); for one that takes (op, *upstream), write "
    "'gradient: module:function'."
)
# What to do about messages of Python's and TensorFlow's that don't say it.
_REMEDIES = {
    r"OpView": _OF_TENSORS,
    r"ndarray' object has no attribute '(inputs|outputs|get_attr)'": _OF_ARRAYS,
    r"supports keywords arguments only when eager": "In a graph, a tf.custom_gradient takes no keyword "
    "argument, and makes a tensor of any other. Write a function of the settings that defines it and returns "
    "it: def make(bits): ..., and call make(4)(x).",
    r"'SymbolicTensor' object has no attribute 'numpy'": "In a graph, a tensor has no value: compute with "
    "TensorFlow's functions.",
    r"has type \w+ that does not match|expected to be a \w+ tensor but is a|conversion requested dtype"
    r"|not in list of allowed values": "Give each input the dtype that the function takes, such as float32; "
    "without one, a spec's input is float64.",
    r"module 'tensorflow[\w.]*' has no attribute": "If it is a name of TensorFlow 1, write "
    "import tensorflow.compat.v1 as tf.",
}
_MISCALLED = re.compile(r"\(\) (takes|missing|got an unexpected|got multiple)")
# How a function is called, which its TypeError doesn't say.
_CALLS = {
    "forward": "The spec's inputs are passed by position, and its attrs by name.",
    "build": "Write the arguments that make it under 'build'.",
    "gradient": _OF_TENSORS,
    "numpy_gradient": _OF_ARRAYS,
    "custom_gradient": "It is called with an upstream for each output, and with 'variables' by name "
    "where the forward uses some.",
    "fields": "Name the fields that it takes.",
}


def raised(error: BaseException, called: str = "") -> str:
    """Return `first_line`, and what to do about it where that is known.

    Args:
        called: what was called, a key of `_CALLS`.
    """
    line = first_line(error)
    remedy = next((remedy for words, remedy in _REMEDIES.items() if re.search(words, line)), "")
    if called == "forward" and isinstance(error, NotImplementedError) and "symbolic" in text_of(error):
        keras: Any = sys.modules.get("keras")
        backend = keras.backend.backend() if keras else "tensorflow"
        remedy = f"Keras computes with {backend}: set KERAS_BACKEND=tensorflow."
        if backend == "tensorflow":
            remedy = "It looks like a NumPy function: use binding: py_func."
    elif _MISCALLED.search(line) and not user_frames(error):
        remedy = _CALLS.get(called, "")
    return f"{line.rstrip('.')}. {remedy}" if remedy else line


def _first_line(error: BaseException) -> str:
    text = text_of(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and lines[0] == "Graph execution error:":
        return _runtime_line(error, lines)
    if lines and lines[0] == "in user code:":
        # AutoGraph prints its own listing first; the message itself is the last line.
        return private_graphs.CONVERTED.sub("", lines[-1])
    if len(lines) > 1 and lines[0].startswith(_IN_KERAS):
        lines[0] = f"{_BOLD.sub('', lines[1])} ({lines[0].removeprefix(_IN_KERAS).strip().rstrip('.')})"
    head = "no message"
    if lines:
        head = private_graphs.CONVERTED.sub("", re.sub(r"^\{\{.*?\}\}\s*", "", lines[0]))
    return head if _NAMED_ERROR.match(head) else f"{type_name(error)}: {head}"


def _runtime_line(error: BaseException, lines: list[str]) -> str:
    """Find the message in a graph's error: after the listing of where the op was made, before its node."""
    message_lines = [
        line
        for line in lines[1:]
        if not line.startswith(
            ("File ", "Detected at node", "[[{{node", "Traceback ", "node: ", "<stack traces")
        )
        and "root error(s) found" not in line
    ]
    named = next((line for line in message_lines if _NAMED_ERROR.match(line)), None)
    if named is not None:
        return named
    message_lines = [re.sub(r"^\(\d+\) [A-Z_ ]+: +", "", line) for line in message_lines]
    return f"{type_name(error)}: {message_lines[0] if message_lines else lines[0]}"


def place_in_tensorflow(error: BaseException) -> str:
    """Return `file.py:line` of the line that raised, if it is TensorFlow's."""
    raised_in = traceback.extract_tb(error.__traceback__)[-1:]
    return next(
        (f"{Path(frame.filename).name}:{frame.lineno}" for frame in raised_in if _OPS in frame.filename), ""
    )


def own_place(error: BaseException) -> str:
    """Return `file.py:line` of gradcheck's innermost frame, for a report of a fault in gradcheck."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "unknown"
