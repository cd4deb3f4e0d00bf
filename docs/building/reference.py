"""Pages of reference, read off the code: the commands, the guard, the policy, the errors."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from textwrap import dedent

from repository import ROOT

_PACKAGE = ROOT / "src" / "stayfinite"


def reference_pages() -> dict[str, str]:
    """All of them, by their place on the site."""
    return {
        "reference/commands.md": _commands(),
        "reference/guard.md": _guard(),
        "reference/policy.md": _policy(),
        "reference/errors.md": _errors(),
    }


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


def _policy() -> str:
    found = _class(_PACKAGE / "core" / "policy.py", "Policy")
    lines = [f"# Policy\n\n{_prose(found)}\n", "| setting | default | meaning |", "|---|---|---|"]
    for field, words in zip(found.body, found.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(words, ast.Expr):
            name, default = ast.unparse(field.target), ast.unparse(field.value) if field.value else ""
            lines.append(f"| `{name}` | `{default}` | {_cell(ast.literal_eval(words.value))} |")
    lines += ["", "## Ready-made", ""]
    lines += [f"- `{_call('Policy', each)}`: {_prose(each)}" for each in _public(found)]
    return "\n".join(lines) + "\n"


def _guard() -> str:
    found = _class(_PACKAGE / "guard" / "guard.py", "Guard")
    about, _, arguments = (ast.get_docstring(found) or "").partition("Arguments:\n")
    arguments, _, raises = arguments.partition("Raises:\n")
    inside = _class(_PACKAGE / "guard" / "machinery.py", "Machinery")
    (start,) = (each for each in inside.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
    lines = ["# Guard", "", about.split("\n")[0], "", "```py", f"{_call('Guard', start)}", "```", ""]
    lines += ["| argument | meaning |", "|---|---|"]
    lines += [
        f"| `{name}` | {_cell(words)} |" for name, words in re.findall(r"^    (\w+): (.+)$", arguments, re.MULTILINE)
    ]
    lines += [
        "",
        *(f"Raises `{name}`: {words}" for name, words in re.findall(r"^    (\w+): (.+)$", raises, re.MULTILINE)),
    ]
    for each in _public(found):
        lines += ["", f"## {each.name}", "", "```py", _call("guard", each), "```", "", _prose(each)]
    return "\n".join(lines) + "\n"


def _errors() -> str:
    import stayfinite.errors

    about, _, tree = (inspect.getdoc(stayfinite.errors) or "").partition("::\n\n")
    tree, _, more = tree.partition("\n\n")
    lines = ["# Errors", "", about, "```text", dedent(tree), "```", "", more.replace("``", "`")]
    for each in ast.parse((_PACKAGE / "errors.py").read_text(encoding="utf-8")).body:
        if isinstance(each, ast.ClassDef):
            lines += ["", f"## {each.name}", "", _prose(each)]
    return "\n".join(lines) + "\n"


def _class(path: Path, name: str) -> ast.ClassDef:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (found,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
    return found


def _public(found: ast.ClassDef) -> list[ast.FunctionDef]:
    return [each for each in found.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]


def _call(owner: str, function: ast.FunctionDef) -> str:
    """How a function is called, one argument a line where there are many."""
    given = function.args
    given.args = given.args[1:]
    name = owner if function.name == "__init__" else f"{owner}.{function.name}"
    if any(isinstance(each, ast.Name) and each.id == "property" for each in function.decorator_list):
        return f"{name} -> {ast.unparse(function.returns)}" if function.returns else name
    words = ast.unparse(given)
    returns = (
        f" -> {ast.unparse(function.returns)}" if function.returns and ast.unparse(function.returns) != "None" else ""
    )
    if len(words) < 90:
        return f"{name}({words}){returns}"
    return f"{name}(\n    " + re.sub(r", (?=\w+:|\*)", ",\n    ", words) + f",\n){returns}"


def _prose(node: ast.ClassDef | ast.FunctionDef) -> str:
    """A docstring as Markdown: code in single backticks, arguments and errors as lists."""
    words = re.sub(r":\w+:`", "`", ast.get_docstring(node) or "").replace("``", "`")
    words = re.sub(r"^(Arguments|Returns|Raises):\n", r"**\1**\n\n", words, flags=re.MULTILINE)
    words = re.sub(r"^    (\w+): ", r"- `\1`: ", words, flags=re.MULTILINE)
    return re.sub(r"^    ", "", words, flags=re.MULTILINE)


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("``", "`").replace("|", "\\|")
