"""Puts each page of a folder that the navigation names as `folder/` into it, in the order of their names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the folders; mkdocs calls this before it reads the navigation."""
    config.nav = _filled(config.nav, Path(config.docs_dir))
    return config


def _filled(part: Any, pages: Path) -> Any:  # noqa: ANN401 (YAML)
    if isinstance(part, list):
        filled = [_filled(one, pages) for one in part]
        return [page for one in filled for page in (one if isinstance(one, list) else [one])]
    if isinstance(part, dict):
        return {title: _filled(inside, pages) for title, inside in part.items()}
    if isinstance(part, str) and part.endswith("/"):
        return [str(page.relative_to(pages)) for page in sorted((pages / part).glob("*.md"))]
    return part
