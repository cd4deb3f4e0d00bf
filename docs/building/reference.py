"""Pages of reference, read off the code: the commands, and every public name with its docstring."""

from __future__ import annotations

PAGES = {
    "guard": ("Guard", "stayfinite.Guard stayfinite.Decision stayfinite.Signals stayfinite.Action stayfinite.Code"),
    "policy": ("Policy", "stayfinite.Policy"),
    "checking": (
        "Check and diagnose",
        "stayfinite.preflight stayfinite.attach stayfinite.diagnose stayfinite.Diagnosis stayfinite.Finding",
    ),
    "precision": (
        "Precision",
        "stayfinite.plan_precision stayfinite.PrecisionPlan stayfinite.Budget stayfinite.keep_in_range",
    ),
    "rl": ("Post-training", "stayfinite.rl"),
    "errors": ("Errors", "stayfinite.errors"),
}
"""Title and public names of each page."""


def reference_pages() -> dict[str, str]:
    """All of them, by their place on the site."""
    pages = {f"reference/{name}.md": _page(title, names.split()) for name, (title, names) in PAGES.items()}
    return {"reference/commands.md": _commands()} | pages


def _page(title: str, names: list[str]) -> str:
    # mkdocstrings writes a name's signature, docstring and members where it finds these three colons.
    return f"# {title}\n\n" + "\n".join(f"::: {name}\n" for name in names)


def _commands() -> str:
    from stayfinite.cli import COMMANDS

    lines = [
        "# Commands",
        "",
        "`stayfinite COMMAND --help` explains one. A command that judges ends with 0 when nothing is wrong, 1 with",
        "findings, 2 on wrong use, and prints the same as data with `--json`.",
        "",
        "| command | what it does |",
        "|---|---|",
    ]
    return "\n".join(lines + [f"| `stayfinite {name}` | {_cell(what)} |" for name, what in COMMANDS.items()]) + "\n"


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("``", "`").replace("|", "\\|")
