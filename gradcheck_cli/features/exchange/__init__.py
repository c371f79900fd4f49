"""Results for other programs: JUnit, SARIF, GitHub's annotations and summaries, lines for `grep`."""

from __future__ import annotations

from gradcheck_cli.hooks import Format

_ROOM = "gradcheck_cli.features.exchange"
FORMATS = {
    "junit": Format(f"{_ROOM}.junit", "to_junit"),
    "github": Format(
        f"{_ROOM}.annotations", "to_github", is_rooted=True, to_file=False, of_faults="faults_github"
    ),
    "markdown": Format(f"{_ROOM}.markdown", "to_markdown", is_rooted=True),
    "sarif": Format(
        f"{_ROOM}.annotations", "to_sarif", is_rooted=True, is_json=True, of_faults="faults_sarif"
    ),
    "concise": Format(f"{_ROOM}.concise", "to_concise", to_file=False),
}
