"""The templates of features, in which reports are written: pages, Markdown, XML."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gradcheck_cli import visible
from gradcheck_cli.reporting.terminal import layout


@lru_cache(maxsize=4)
def templates(package: str, write: Callable[[object], object]) -> Environment:
    """Return the templates of a package, and those that several use.

    Args:
        write: makes markup of what a template writes, unless it is some.
    """
    return Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("gradcheck_cli.reporting")]),
        autoescape=True,
        finalize=write,
        undefined=StrictUndefined,
        trim_blocks=True,
    )


def render_markdown(package: str, template: str, **context: object) -> str:
    """Render a template of a package in Markdown; what it writes is shown literally."""
    environment = templates(
        package,
        lambda value: Markup(layout.escape(value)) if type(value) is str else value,  # noqa: S704 (it is escaped)
    )
    text = environment.get_template(template).render(count=visible.count, **context)
    return text.rstrip("\n") + "\n"
