"""Results for other programs: JSON, JUnit, SARIF, GitHub, Markdown."""
