"""The expressions of `-k`: words combined by and, or, not and brackets, as in pytest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Matcher = Callable[[str], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<bracket>[()])|(?P<quote>['"])(?P<quoted>.*?)(?P=quote)|(?P<word>[^\s()'"]+))"""
)
_KEYWORDS = ("and", "or", "not")
_DEEPEST = 50  # levels of `not` and brackets: no real expression has more, and Python's stack ends


class ExpressionError(ValueError):
    """A malformed expression; the text says where the fault is and what was expected."""


@dataclass(frozen=True)
class _Token:
    text: str
    position: int
    is_name: bool

    def __str__(self) -> str:
        return f"{self.text!r} (character {self.position + 1})" if self.text else "the end"


def compile_expression(text: str) -> Matcher:
    """Return a function that says whether an expression holds for a text.

    Args:
        text: such as `huber and not (wide or tall)`. A word holds if the text contains it, in upper or lower
            case. In quotes it may contain blanks and brackets, or be `and`, `or`, `not`.

    Raises:
        ExpressionError: the expression is malformed.
    """
    parser = _Parser(text)
    matcher = parser.parse_or(0)
    parser.expect_end()
    return lambda target: matcher(target.casefold())


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _takes(self, word: str) -> bool:
        is_match = self._token.text == word and not self._token.is_name
        self._next += is_match
        return is_match

    def parse_or(self, depth: int) -> Matcher:
        sides = [self._parse_and(depth)]
        while self._takes("or"):
            sides.append(self._parse_and(depth))
        return lambda text: any(side(text) for side in sides)

    def _parse_and(self, depth: int) -> Matcher:
        sides = [self._parse_not(depth)]
        while self._takes("and"):
            sides.append(self._parse_not(depth))
        return lambda text: all(side(text) for side in sides)

    def _parse_not(self, depth: int) -> Matcher:
        if depth > _DEEPEST:
            raise ExpressionError(f"must not go deeper than {_DEEPEST} levels of 'not' and brackets")
        if self._takes("not"):
            inner = self._parse_not(depth + 1)
            return lambda text: not inner(text)
        if self._takes("("):
            inner = self.parse_or(depth + 1)
            if not self._takes(")"):
                raise ExpressionError(f"expected 'and', 'or' or ')', but got {self._token}")
            return inner
        token = self._token
        if not token.is_name:
            raise ExpressionError(f"expected a name, 'not' or '(', but got {token}")
        self._next += 1
        word = token.text.casefold()
        return lambda text: word in text

    def expect_end(self) -> None:
        if self._token.text or self._token.is_name:
            raise ExpressionError(f"expected 'and', 'or' or the end, but got {self._token}")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionError(f"a quote is never closed: {text[position:].lstrip()!r}")
        start = position + len(match[0]) - len(match[0].lstrip())
        if match["quoted"] is not None:
            yield _Token(match["quoted"], start, is_name=True)
        else:
            word = match["bracket"] or match["word"]
            yield _Token(word, start, is_name=not match["bracket"] and word not in _KEYWORDS)
        position = match.end()
    yield _Token("", len(text), is_name=False)
