"""`assert_gradients`: a check of a function as one line of a test."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from gradcheck_cli.features.library.library import check_function
from gradcheck_cli.reporting.exchange.findings import BAD, findings_of
from gradcheck_cli.reporting.terminal.report_text import render_report
from gradcheck_cli.results import Report

__unittest = True  # unittest leaves this file's lines out of a failure, as `__tracebackhide__` does in pytest
_SPEC_KEY = re.compile(r"'[a-z_]+: [^']+'|binding:")
_IN_A_SPEC = "In Python, a spec is a mapping: gradcheck_cli.check({'forward': f, 'inputs': {'x': x}, ...})"


def assert_gradients(  # noqa: PLR0913 (the options of one call)
    fn: Callable[..., Any],
    /,
    *args: object,
    reference: Callable[..., Any] | None = None,
    variables: bool | Sequence[Any] | None = None,
    modes: Sequence[str] = ("graph",),
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    **kwargs: object,
) -> None:
    """Assert that a function's gradients are right at the arguments given; see `check_function`.

    Args:
        args: its positional arguments.
        reference: a function whose derivative the gradient should be instead.
        variables: whether its trainable variables are checked too, or which.
        modes: how it is called: "graph", "dynamic", "eager", "xla".
        rtol: relative tolerance.
        atol: absolute tolerance.
        seed: of random ops that it uses.
        kwargs: its keyword arguments.

    Raises:
        AssertionError: a gradient is wrong, or couldn't be checked; with the table of all pairs.
        TypeError: the function can't be called, or no argument is floating.
        ValueError: a mode is unknown, or a tolerance is negative.

    Example:
        >>> def test_log1pexp():
        ...     assert_gradients(log1pexp, np.linspace(-3, 3, 7))
    """
    __tracebackhide__ = True  # pytest shows the test's own line
    report = check_function(
        fn,
        *args,
        reference=reference,
        variables=variables,
        modes=modes,
        rtol=rtol,
        atol=atol,
        seed=seed,
        **kwargs,
    )
    if not report:
        raise AssertionError(describe_failure(report))


def describe_failure(report: Report) -> str:
    """Return the table of a report that isn't all right, and what to do next."""
    lines = [f"{report!r}", render_report(report).rstrip()]
    codes = [finding.code for finding in findings_of(report) if finding.outcome in BAD and finding.code]
    if codes:
        lines.append(f"`gradcheck explain {codes[0].number}` says what that means, and what to do")
    if _SPEC_KEY.search(lines[1]):
        lines.append(_IN_A_SPEC)
    return "\n".join(lines)
