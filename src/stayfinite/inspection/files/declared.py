"""The flags that a script declares, from its syntax tree: argparse, click, absl, dataclass parsers."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import plain_name
from stayfinite.inspection.files.known_names import EXAMPLE_SCRIPTS, TRAINING_ARGUMENTS, TRL

_LIBRARY = {
    "TrainingArguments": TRAINING_ARGUMENTS,
    "Seq2SeqTrainingArguments": TRAINING_ARGUMENTS,
}
_PARSERS = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
_OPEN = lazy_regex(
    r"parse_known_args|add_subparsers|\bparents\s*=|add_argparse_args|LightningCLI|@hydra|hydra\.main|fire\.Fire|"
    r"tyro\.cli|"
    r"jsonargparse|fromfile_prefix_chars|simple_parsing|sys\.argv|allow_extra|OmegaConf|exec\(|return_remaining_strings"
)
"""Code that lets a program accept undeclared flags."""


_CALLED = ("parser", "ap", "argparser")  # usual names of a parser


@dataclass(slots=True)
class Declared:
    """The command-line interface of a script."""

    flags: set[str] = field(default_factory=set)
    """As declared, with dashes."""
    names: set[str] = field(default_factory=set)
    """Fields of a parser that treats `-` and `_` alike."""
    whole: bool = True
    """Whether the list is complete."""

    def __bool__(self) -> bool:
        return bool(self.flags or self.names)

    def takes(self, flag: str) -> bool:
        """Whether this is a declared flag, an argparse abbreviation, or a negation."""
        if flag in self.flags or flag in ("-h", "--help", "--local_rank", "--local-rank"):
            return True
        plain = plain_name(flag)
        if plain in self.names or plain.removeprefix("no_") in self.names:
            return True
        return flag.startswith("--") and any(each.startswith(flag) for each in self.flags)

    @property
    def known(self) -> set[str]:
        """All names in comparable form."""
        return self.names | {plain_name(flag) for flag in self.flags if flag.startswith("--")}


def declared_in(text: str) -> Declared:
    """Read a script's flags; falsy if it visibly declares none."""
    declared = Declared()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Declared(whole=False)
    if _OPEN.search(text):
        declared.whole = False
    classes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _take_call(node, declared, classes, functions)
        elif isinstance(node, ast.Assign) and _comes_from_elsewhere(node, functions):
            declared.whole = False
    return declared


def _comes_from_elsewhere(node: ast.Assign, functions: set[str]) -> bool:
    """Whether a function of another file creates the parser: `parser = get_argument_parser()`."""
    target, call = node.targets[0], node.value
    if not (isinstance(target, ast.Name) and target.id in _CALLED and isinstance(call, ast.Call)):
        return False
    name = _name_of(call)
    return not name.endswith("Parser") and name != "add_config_arguments" and name not in functions


def _take_call(call: ast.Call, declared: Declared, classes: dict[str, ast.ClassDef], functions: set[str]) -> None:
    name = _name_of(call)
    texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if name in ("add_argument", "option"):
        flags = {each for each in texts if each.startswith("-")}
        if not texts:
            declared.whole = False  # a computed name
        declared.flags |= {part for each in flags for part in each.split("/")}
        if any(
            _ends_in(keyword.value, "BooleanOptionalAction") for keyword in call.keywords if keyword.arg == "action"
        ):
            declared.flags |= {f"--no-{each[2:]}" for each in flags if each.startswith("--")}
    elif name.startswith("DEFINE_") and texts:
        declared.flags |= {f"--{texts[0]}", f"--no{texts[0]}"}
    elif name == "add_config_arguments":
        declared.flags |= {"--deepspeed", "--deepspeed_config", "--deepscale", "--deepscale_config"}
    elif name in _PARSERS:
        for each in _class_names(call):
            _take_class(each, declared, classes)
    elif any(isinstance(each, ast.Name) and each.id in _CALLED for each in call.args):
        declared.whole = declared.whole and name in functions


def _name_of(call: ast.Call) -> str:
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


def _class_names(call: ast.Call) -> Iterator[str]:
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        for each in argument.elts if isinstance(argument, (ast.Tuple, ast.List)) else [argument]:
            yield each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else ""


def _take_class(name: str, declared: Declared, classes: dict[str, ast.ClassDef], depth: int = 0) -> None:
    if name in classes and depth < 8:
        definition = classes[name]
        for statement in definition.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                declared.names.add(statement.target.id.lower())
        for parent in definition.bases:
            _take_class(
                parent.attr if isinstance(parent, ast.Attribute) else getattr(parent, "id", ""),
                declared,
                classes,
                depth + 1,
            )
    elif name in _LIBRARY:
        declared.names |= _LIBRARY[name]
    elif re.search(r"Config$|Arguments$", name):
        declared.names |= TRAINING_ARGUMENTS | TRL | EXAMPLE_SCRIPTS
        declared.whole = False
    elif name != "object":
        declared.whole = False


def _ends_in(node: ast.expr, word: str) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == word) or (isinstance(node, ast.Name) and node.id == word)
