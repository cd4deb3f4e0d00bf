"""``stayfinite train RECIPE``: a complete training program, stable out of the box."""

from collections.abc import Sequence

from stayfinite.cli.ending import run_program

RECIPES = {
    "mt5": "a language model for a low-resource language, from raw text (T5 span corruption)",
    "translate": "ByT5 or T5 translation, from pairs of texts",
    "sft": "LoRA fine-tuning of a small chat model on questions and answers",
    "grpo": "reinforcement learning of a small chat model, with checkable answers",
    "mmdit": "joint text and latent diffusion",
    "compare": "which of two images: a vision-language model on pairs",
}
"""Each recipe and what it trains; its module has the same name and a ``main(arguments)``."""


def run(arguments: Sequence[str]) -> int:
    """Run a recipe; see `run_program` for exit codes."""
    about = "Train a model: checked before the start, guarded while it runs."
    programs = {name: (f"stayfinite.recipes.{name}", what) for name, what in RECIPES.items()}
    return run_program("train", "recipe", about, programs, arguments, hint="; without any, train a built-in task")
