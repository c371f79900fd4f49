"""Finds inputs at which a gradient is wrong: sides of branches that no sample point takes; `search`."""

from __future__ import annotations

from gradcheck_cli.hooks import Command, OpenCase

COMMANDS = {
    "search": Command(
        "gradcheck_cli.features.search.search_command", "Search for an input at which a gradient is wrong."
    )
}
HOOKS = {name: f"{__name__}:{name}" for name in ("draw_more_points", "choose_points")}
FOR_CASES = ("gradcheck_cli.features.search.search_case", "gradcheck_cli.features.search.other_points")


def draw_more_points(judged: OpenCase) -> None:
    """Check more draws if a pair is undecided and disagrees with its gradient."""
    from gradcheck_cli.features.search.other_points import check_more_draws

    check_more_draws(judged.opener, judged.findings, judged.spent)


def choose_points(judged: OpenCase) -> None:
    """Search the case if its spec says so; else check points on other sides of its branches."""
    from gradcheck_cli.features.search.other_points import check_other_points
    from gradcheck_cli.features.search.search_case import search

    if not (judged.explains and judged.findings.pairs):
        return
    seconds = judged.opener.case.search
    if not seconds or not search(judged.opener, judged.points, judged.findings, seconds, judged.spent):
        check_other_points(judged.opener, judged.points, judged.findings, judged.spent)
