"""The command line: one file per command, loaded only when it is called."""

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

from stayfinite.cli import ending

GROUPS = {
    "Before training": {
        "check": "check configs, data, memory, or the real model with a batch",
        "diff": "compare two configs, scripts or notebooks, stability first",
        "precision": "plan the fastest precision for each module within a stated error",
        "rescale": "rewrite a model to fit fp16, as the same function",
    },
    "During training": {
        "run": "run a training command and restart it after a crash",
        "watch": "watch runs live in the terminal; --web for a browser",
        "tail": "follow a log and report when it turns bad",
        "doctor": "run a training program unmodified and prove what is wrong with it",
    },
    "After training": {
        "diagnose": "find out what went wrong, from a log, config or run directory",
        "report": "write one or several runs as one HTML page",
        "plot": "draw loss, gradient norm and learning rate of one or several runs",
        "replay": "re-run a captured incident and prove its cause",
        "scan": "check checkpoints for NaN, damaged files and missing shards",
        "hardware": "find the machine that computes wrong results",
        "export": "write a trained model as a plain transformers directory",
    },
    "Train": {
        "train": "run a complete, stable training program",
        "sft": "fine-tune a small chat model: train, test, chat, datagen",
        "evaluate": "score a translation model: BLEU and chrF++",
        "translate": "translate a file with a trained model",
        "generate": "generate text with a trained language model",
        "demo": "train three times side by side: fp32, plain fp16, guarded fp16",
    },
    "Reference and tools": {
        "explain": "explain a rule: what it means, why it happens, how to fix it",
        "rules": "list every known cause",
        "schema": "print the JSON Schema of --json output and run files",
        "mcp": "serve coding assistants over the Model Context Protocol",
        "completion": "print a completion script for bash or zsh",
    },
}
COMMANDS = {name: what for group in GROUPS.values() for name, what in group.items()}
"""Each command and what it does; its module has the same name and a ``run(arguments) -> exit code``."""


PASS_WORDS_ON = frozenset({"run", "doctor"})
"""Commands whose words belong to another program."""
COLORS: Mapping[str, Mapping[str, str | None]] = {
    "auto": {},
    "always": {"FORCE_COLOR": "1", "NO_COLOR": None},
    "never": {"FORCE_COLOR": None, "NO_COLOR": "1"},
}
NARROWEST = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Exit codes: 0 clean, 1 with findings, 2 on wrong use."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in (["-q"], ["--quiet"]):
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            return main(words[1:])
    if words[:1] in (["-v"], ["--verbose"]):
        with ending.told_in_full():
            return main(words[1:])
    try:
        words, look = _look(words)
    except ValueError as error:
        print(f"stayfinite: {error}", file=sys.stderr)
        return 2
    if look:
        before = {name: os.environ.get(name) for name in look}
        _set(look)
        try:
            return _run(words, typed=arguments is None)
        finally:
            _set(before)
    return _run(words, typed=arguments is None)


def _look(words: list[str]) -> tuple[list[str], dict[str, str | None]]:
    """The words without `--width` and `--color`, and the environment variables that these mean."""
    first = next((word for word in words if word in COMMANDS), "")
    end = words.index(first) if first in PASS_WORDS_ON else words.index("--") if "--" in words else len(words)
    kept: list[str] = []
    found: dict[str, str | None] = {}
    given = iter(words[:end])
    for word in given:
        name, equals, value = word.partition("=")
        if name not in ("--width", "--color"):
            kept.append(word)
            continue
        value = value if equals else next(given, "")
        if name == "--width" and not (value.isdecimal() and int(value) >= NARROWEST):
            raise ValueError(f"--width takes a number of columns, at least {NARROWEST}; got {value!r}")
        if name == "--color" and value not in COLORS:
            raise ValueError(f"--color takes auto, always or never; got {value!r}")
        found |= {"COLUMNS": value} if name == "--width" else COLORS[value]
    return kept + words[end:], found


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _run(words: list[str], *, typed: bool) -> int:
    try:
        code = _called(words, typed=typed)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe (`| head`); keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 130
    return code


def _called(words: list[str], *, typed: bool) -> int:
    if not words:
        print(_usage(), file=sys.stderr)
        return 2
    command, *rest = [*words[1:], "--help"] if words[0] == "help" else words
    if command in ("-h", "--help"):
        print(_usage())
        return 0
    if command in ("-V", "--version"):
        from stayfinite import __version__

        print(f"stayfinite {__version__}")
        return 0
    if command not in COMMANDS:
        close = ["--version"] if command == "version" else difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "stayfinite --help lists them."
        print(f"stayfinite: no command {command!r}. {hint}", file=sys.stderr)
        return 2
    module = import_module(f"stayfinite.cli.{command}")
    if command == "doctor" and typed:
        module.pin_hash_seed()
    if os.environ.get("NO_COLOR") and "tyro" in sys.modules:
        sys.modules["tyro"]._experimental_options["ansi_codes"] = False  # tyro ignores NO_COLOR
    return int(module.run(rest))


def _usage() -> str:
    width = max(map(len, COMMANDS))
    groups = (
        "\n".join([f"{title}:", *(f"  {name:<{width}}  {what}" for name, what in group.items())])
        for title, group in GROUPS.items()
    )
    commands = "\n\n".join(groups)
    return (
        "usage: stayfinite COMMAND [OPTIONS]\n\nKeep PyTorch training finite, and know why it was "
        f"not.\n\n{commands}\n\nstayfinite COMMAND --help explains a command.\n  -V, --version  print the version\n  "
        "-q, --quiet    print errors only: stayfinite -q check train.yaml\n  -v, --verbose  print the traceback of "
        "an error\n  --width N      wrap at N columns\n  --color WHEN   auto, always or never"
    )
