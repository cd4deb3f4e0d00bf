"""The command line: one file per command, loaded only when it is called."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Exit codes: 0 clean, 1 with findings, 2 on wrong use."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in (["-q"], ["--quiet"]):
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            return main(words[1:])
    if words[:1] in (["-v"], ["--verbose"]):
        with ending.told_in_full():
            return main(words[1:])
    if not words:
        print(_usage(), file=sys.stderr)
        return 2
    command, *rest = words
    if command in ("-h", "--help"):
        print(_usage())
        return 0
    if command in ("-V", "--version"):
        from stayfinite import __version__

        print(f"stayfinite {__version__}")
        return 0
    if command not in COMMANDS:
        close = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "stayfinite --help lists them."
        print(f"stayfinite: no command {command!r}. {hint}", file=sys.stderr)
        return 2
    module = import_module(f"stayfinite.cli.{command}")
    if command == "doctor" and arguments is None:
        module.pin_hash_seed()
    if os.environ.get("NO_COLOR") and "tyro" in sys.modules:
        sys.modules["tyro"]._experimental_options["ansi_codes"] = False  # tyro ignores NO_COLOR
    run = module.run
    try:
        code = int(run(rest))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe (`| head`); keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 130
    return code


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
        "an error"
    )
