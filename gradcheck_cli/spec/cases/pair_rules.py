"""Which rule of a spec governs a pair: globs over labels such as `dy/dvalues[0]`.

Only `*` (any text) and `?` (any character) are special: brackets are part of labels. If several globs match a
label, the last one wins, so exceptions follow their rule; a case's rules come after its op's.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gradcheck_cli.spec.case import PairRule


def rule_for(rules: Sequence[PairRule], label: str) -> PairRule | None:
    """Return the rule that governs a pair, or `None` where no glob matches its label.

    Args:
        rules: a case's rules, in the order written.
        label: the pair's label, `dOUT/dIN`.

    Returns:
        The last rule that matches.
    """
    return next((rule for rule in reversed(rules) if matches(rule.glob, label)), None)


def unmatched_rules(rules: Sequence[PairRule], labels: Iterable[str]) -> tuple[PairRule, ...]:
    """Return the rules that match none of the labels: they are probably misspelt, and have no effect."""
    labels = list(labels)
    return tuple(rule for rule in rules if not any(matches(rule.glob, label) for label in labels))


def matches(glob: str, label: str) -> bool:
    """Tell whether a glob matches a whole label."""
    return _pattern(glob).fullmatch(label) is not None


def could_match(glob: str, label: str) -> bool:
    """Tell whether a glob could match a pair of a part of the output, as `dy.loss/dx` is one of `dy/dx`.

    Args:
        glob: what a spec says.
        label: a pair of an output that may turn out to be a structure.
    """
    output_glob, slash, input_glob = glob.partition("/")
    output, _, input_name = label.partition("/")
    if not slash or not matches(input_glob, input_name):
        return False
    return any(
        char in ".[" and matches(output_glob[:index], output)
        for index, char in enumerate(output_glob)
        if index
    )


@lru_cache(maxsize=1024)
def _pattern(glob: str) -> re.Pattern[str]:
    # Several stars in a row are one star: a regex with many `.*.*` backtracks for a very long time.
    glob = re.sub(r"\*+", "*", glob)
    return re.compile("".join({"*": ".*", "?": "."}.get(char, re.escape(char)) for char in glob), re.DOTALL)
