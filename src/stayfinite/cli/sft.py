"""``stayfinite sft train | test | chat | datagen``: fine-tune a chat model on questions and answers, and use it."""

from collections.abc import Sequence

from stayfinite.cli.ending import run_program

VERBS = {
    "train": ("stayfinite.recipes.sft", "train an adapter, the same as `stayfinite train sft`"),
    "test": ("stayfinite.recipes.chat.testing", "ask held-out questions: accuracy and answer rate"),
    "chat": ("stayfinite.recipes.chat.chatting", "ask a trained adapter yourself"),
    "datagen": ("stayfinite.recipes.chat.sampling", "sample several solutions per answer, keep the correct ones"),
}


def run(arguments: Sequence[str]) -> int:
    """Run a verb; see `run_program` for exit codes."""
    return run_program(
        "sft", "verb", "LoRA fine-tuning of a small chat model on questions and answers.", VERBS, arguments
    )
