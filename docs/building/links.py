"""A page's text as the site needs it: links led to where their target is, lists apart from what is said before them."""

from __future__ import annotations

import posixpath
import re

from repository import page_of, path_of

_FENCED = re.compile(r"(^```.*?^```[^\S\n]*$)", re.DOTALL | re.MULTILINE)
_CLOSE_LIST = re.compile(r"^((?![-*|>#]|\d+\.|\s).+\n)(?=- |1\. )", re.MULTILINE)
_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def lead(markdown: str, page: str) -> str:
    """The same text with every relative link as the site has it; what leads nowhere stays, and the build says so."""
    here = posixpath.dirname(path_of(page))

    def led(found: re.Match[str]) -> str:
        target = page_of(posixpath.normpath(posixpath.join(here, found[1])))
        if target is None:
            return found[0]
        return f"]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{found[2] or ''})"

    parts = _FENCED.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(led, _apart(part)) for part in parts)


def _apart(text: str) -> str:
    """Markdown as the repository shows it needs no blank line before a list; that of the site does."""
    return _CLOSE_LIST.sub(r"\1\n", text)
