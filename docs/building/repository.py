"""Files of the repository outside of docs/ that are pages of the site too."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]

_TEXTS = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
_SCRIPT = """# {name}

[What every script shows, and how to run it](README.md).

```py
{code}```
"""


def page_of(path: str) -> str | None:
    """The page of the site that shows a file or folder of the repository, if there is one."""
    if path in ("docs", "README.md"):
        return "index.md"
    if path in ("benchmarks", "benchmarks/results"):
        return "benchmarks/README.md"
    if path.startswith("docs/"):
        inside = path.removeprefix("docs/")
        if (ROOT / path).is_dir():
            return f"{inside}/README.md" if (ROOT / path / "README.md").is_file() else f"{inside}/index.md"
        return inside
    if path in _TEXTS:
        return _TEXTS[path]
    if path.startswith("benchmarks/") and (ROOT / path).is_file():
        return f"{path.removesuffix('.py')}.md" if path.endswith(".py") else path
    return None


def path_of(page: str) -> str:
    """Where in the repository a page of the site comes from."""
    for path, place in _TEXTS.items():
        if place == page:
            return path
    return page if page.startswith("benchmarks/") else f"docs/{page}"


def repository_pages() -> dict[str, str]:
    """The pages themselves, and the data that they link to, by their place on the site."""
    pages = {place: _text(ROOT / path) for path, place in _TEXTS.items()}
    for path in ("benchmarks/README.md", "benchmarks/failures/README.md"):
        pages[path] = _text(ROOT / path)
    for path in sorted((ROOT / "benchmarks" / "results").iterdir()):
        pages[f"benchmarks/results/{path.name}"] = _text(path)
    for path in sorted([*(ROOT / "benchmarks").glob("*.py"), ROOT / "benchmarks" / "failures" / "naming.py"]):
        if path.name != "__init__.py":
            place = path.relative_to(ROOT).with_suffix(".md").as_posix()
            pages[place] = _SCRIPT.format(name=path.name, code=_text(path))
    return pages


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
