"""What mkdocs is told while it builds the site: further pages, the navigation, links that leave docs/."""

from __future__ import annotations

from typing import Any

from contents import contents_page, expand
from links import lead
from reference import reference_pages
from repository import repository_pages


def on_config(config: Any) -> Any:
    """Write out every star of the navigation."""
    config.nav = [part for each in config.nav for part in expand(each)]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that no file in docs/ holds."""
    from mkdocs.structure.files import File

    pages = repository_pages() | reference_pages()
    pages["integrations/index.md"] = contents_page("integrations")
    pages["recipes/index.md"] = contents_page("recipes")
    for place, text in pages.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to files of the repository to the pages that show them."""
    return lead(markdown, page.file.src_uri)
