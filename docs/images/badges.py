"""Draws the README's badges from pyproject.toml and the tests: ``python docs/images/badges.py``. No network needed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHARACTER, PADDING, HEIGHT = 6.6, 8, 20


def badges() -> dict[str, str]:
    """Each badge's file name and SVG."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    python = project["requires-python"].removeprefix(">=") + "+"
    found = {"version": project["version"], "license": project["license"], "python": python, "tests": tests()}
    return {f"badge_{name}.svg": badge(name, value) for name, value in found.items()}


def tests() -> str:
    """How many test functions there are, rounded down to hundreds."""
    files = (ROOT / "tests").rglob("*.py")
    count = sum(len(re.findall(r"^ *def test_", path.read_text(encoding="utf-8"), re.MULTILINE)) for path in files)
    return f"{count // 100 * 100:,}+"


def badge(name: str, value: str) -> str:
    """An SVG with a gray name and a green value."""
    left, right = (round(len(text) * CHARACTER + 2 * PADDING) for text in (name, value))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{HEIGHT}" role="img" '
        f'aria-label="{name}: {value}"><rect width="{left + right}" height="{HEIGHT}" rx="3" fill="#00695c"/>'
        f'<path d="M3 0H{left}V{HEIGHT}H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#444"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14">{name}</text><text x="{left + right / 2}" y="14">{value}</text></g></svg>\n'
    )


if __name__ == "__main__":
    for file, drawn in badges().items():
        (HERE / file).write_text(drawn, encoding="utf-8")
