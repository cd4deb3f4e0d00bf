"""The blocks of code on the pages of the docs, and what is said above them about running them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

PYTHON = ("python",)
SHELL = ("sh", "bash")
SHOWN = ("", "text", "json", "yaml", "py", "html")
"""Languages of blocks that show something and are not meant to be run; `py` is code of the repository itself."""

_BLOCK = re.compile(
    r"(?:^<!-- (?P<word>[a-z ]+?)(?:: (?P<more>[^\n]+?))? -->\n\n?)?^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```\s*$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    code: str
    not_run: str
    """Why it is not run; empty where it is."""
    is_output: bool
    """Whether it shows what the block before it printed."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in PYTHON + SHELL and not self.not_run


def pages() -> list[str]:
    """Every page of the site that is written by hand, relative to the repository."""
    found = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")]
    found += [ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = []
    for found in _BLOCK.finditer(text):
        reason = found["more"] or "" if found["word"] == "not run" else ""
        blocks.append(
            Block(
                page=page,
                line=text.count("\n", 0, found.start("language")) + 1,
                language=found["language"],
                code=found["code"],
                not_run=reason,
                is_output=found["word"] == "output",
            )
        )
    return blocks
