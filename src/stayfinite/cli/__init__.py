"""The command line: one file a command, loaded only when it is called."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

from stayfinite.cli import ending

COMMANDS = {
    "check": "look before you launch: configs, data, memory, or the real model with a batch",
    "precision": "plan what each module may compute in on a card: the fastest formats within a stated error",
    "diff": "hold two configs, scripts or notebooks against each other, what matters for stability first",
    "diagnose": "say what went wrong with a run, from its log, config or directory",
    "report": "draw one or several runs into one HTML page that needs nothing else",
    "watch": "watch runs while they train: health in one word, curves, pace, decisions; --web for a browser",
    "run": "run a training command, and run it again when it crashes, never when a guard stopped it",
    "train": "run a complete, stable training program",
    "evaluate": "score a translation model on pairs of texts: BLEU and chrF++",
    "translate": "translate a file with a trained model",
    "generate": "text from a trained language model: goes on from a prompt, or fills gaps in it",
    "sft": "fine-tune a small chat model on questions and answers: train, test, chat, datagen",
    "export": "write what a run trained as a plain transformers directory, with its model card",
    "tail": "follow a log live and speak up when it turns",
    "plot": "draw loss, gradient norm and learning rate of one or several runs",
    "scan": "look through checkpoints: numbers that are not finite, files cut off or changed, shards missing",
    "rescale": "make fp16 possible: an equivalent network whose activations fit, proved on data",
    "hardware": "add up over runs, restarts and ranks which machine gives wrong results",
    "replay": "run a captured incident again and prove what caused it",
    "doctor": "run a training program as it is, watch it from outside, and prove what is wrong",
    "mcp": "serve assistants over the Model Context Protocol: diagnose, check, explain and more as tools",
    "schema": "print the JSON Schema of what --json prints and of what a run writes",
    "explain": "tell what a rule means, why it happens and how to fix it",
    "rules": "list every known cause",
    "completion": "print a script that lets bash or zsh complete commands and flags",
    "demo": "train three times side by side: fp32, fp16 as found in the wild, fp16 guarded",
}
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
        hint = f" Did you mean {close[0]!r}?" if close else ""
        print(f"stayfinite: there is no command {command!r}.{hint}\n\n{_usage()}", file=sys.stderr)
        return 2
    module = import_module(f"stayfinite.cli.{command}")
    if command == "doctor" and arguments is None:
        module.pin_hash_seed()
    if os.environ.get("NO_COLOR") and "tyro" in sys.modules:
        sys.modules["tyro"]._experimental_options["ansi_codes"] = False  # tyro knows no NO_COLOR
    run = module.run
    try:
        code = int(run(rest))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has seen enough (`| head`); the interpreter must not complain of it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 130
    return code


def _usage() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {what}" for name, what in COMMANDS.items())
    return (
        "usage: stayfinite COMMAND [OPTIONS]\n\nKeep PyTorch training finite, and know why it was not.\n\n"
        f"{commands}\n\nstayfinite COMMAND --help explains a command.\n"
        "  -V, --version  print the version\n"
        "  -q, --quiet    print errors only: stayfinite -q check train.yaml\n"
        "  -v, --verbose  print the traceback of an error too"
    )
