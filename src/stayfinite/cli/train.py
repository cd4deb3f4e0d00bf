"""``stayfinite train RECIPE``: a complete training program, stable out of the box."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

from stayfinite.errors import NotReady, StayfiniteError, TrainingStopped

RECIPES = {
    "mt5": "a language model for a low-resource language, from raw text (T5 span corruption)",
    "translate": "ByT5 or T5 translation, from pairs of texts",
    "sft": "LoRA fine-tuning of a small chat model on questions and answers",
    "mmdit": "joint text and latent diffusion",
    "compare": "which of two images: a vision-language model on pairs",
}
"""Each recipe and what it trains; its module has the same name and a ``main(arguments)``."""


def run(arguments: Sequence[str]) -> int:
    """Run a recipe.

    Returns:
        0 when it was trained, 1 when its check refused to start, 2 on wrong use; a training that stopped has its own.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    name, *flags = arguments
    if name not in RECIPES:
        close = difflib.get_close_matches(name, RECIPES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        print(f"stayfinite train: there is no recipe {name!r}.{hint}\n\n{_usage()}", file=sys.stderr)
        return 2
    try:
        import_module(f"stayfinite.recipes.{name}").main(flags)
    except TrainingStopped as error:
        print(f"stayfinite train {name}: {error}", file=sys.stderr)
        return error.exit_code
    except NotReady as error:
        print(f"stayfinite train {name}: {error}", file=sys.stderr)
        return 1
    except StayfiniteError as error:
        print(f"stayfinite train {name}: {error}", file=sys.stderr)
        return 2
    return 0


def _usage() -> str:
    width = max(map(len, RECIPES))
    recipes = "\n".join(f"  {name:<{width}}  {what}" for name, what in RECIPES.items())
    return (
        "usage: stayfinite train RECIPE [OPTIONS]\n\n"
        "Train a model, checked before it starts, guarded while it runs.\n\n"
        f"{recipes}\n\nstayfinite train RECIPE --help explains its settings; without any it trains a built-in task."
    )
