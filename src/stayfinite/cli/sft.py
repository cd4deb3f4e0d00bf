"""``stayfinite sft train | test | chat | datagen``: a chat model fine-tuned on questions and answers, and used."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

from stayfinite.errors import NotReady, StayfiniteError, TrainingStopped

VERBS = {
    "train": ("stayfinite.recipes.sft", "train an adapter, the same as `stayfinite train sft`"),
    "test": ("stayfinite.recipes.chat.testing", "ask held-out questions: accuracy and answer rate"),
    "chat": ("stayfinite.recipes.chat.chatting", "ask a trained adapter yourself"),
    "datagen": (
        "stayfinite.recipes.chat.sampling",
        "sample several ways to each answer, keep the right ones to train on",
    ),
}
"""Each verb, the module whose ``main(arguments)`` does it, and what it does."""


def run(arguments: Sequence[str]) -> int:
    """Run a verb.

    Returns:
        0 when it was done, 1 when a check refused to start, 2 on wrong use; a training that stopped has its own.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    verb, *flags = arguments
    if verb not in VERBS:
        close = difflib.get_close_matches(verb, VERBS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        print(f"stayfinite sft: there is no {verb!r}.{hint}\n\n{_usage()}", file=sys.stderr)
        return 2
    try:
        import_module(VERBS[verb][0]).main(flags)
    except TrainingStopped as error:
        print(f"stayfinite sft {verb}: {error}", file=sys.stderr)
        return error.exit_code
    except NotReady as error:
        print(f"stayfinite sft {verb}: {error}", file=sys.stderr)
        return 1
    except StayfiniteError as error:
        print(f"stayfinite sft {verb}: {error}", file=sys.stderr)
        return 2
    return 0


def _usage() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:<{width}}  {what}" for name, (_, what) in VERBS.items())
    return (
        "usage: stayfinite sft VERB [OPTIONS]\n\n"
        "LoRA fine-tuning of a small chat model on questions and answers.\n\n"
        f"{verbs}\n\nstayfinite sft VERB --help explains its settings."
    )
