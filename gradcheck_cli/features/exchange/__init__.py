"""Results for other programs: JUnit, SARIF, GitHub's annotations and summaries, lines for `grep`."""

from __future__ import annotations

from gradcheck_cli.hooks import Format

FORMATS = {
    "junit": Format("junit", "to_junit"),
    "github": Format("annotations", "to_github", is_rooted=True, to_file=False, of_faults="faults_github"),
    "markdown": Format("markdown", "to_markdown", is_rooted=True),
    "sarif": Format("annotations", "to_sarif", is_rooted=True, is_json=True, of_faults="faults_sarif"),
    "concise": Format("concise", "to_concise", to_file=False),
}
