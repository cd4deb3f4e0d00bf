"""``stayfinite sft train | test | chat | datagen``: fine-tune a chat model on questions and answers, and use it."""

from __future__ import annotations

from collections.abc import Sequence

from stayfinite.cli.programs import Program, Programs

PROGRAMS = Programs(
    command="sft",
    kind="verb",
    about="LoRA fine-tuning of a small chat model on questions and answers.",
    hint="",
    listed={
        "train": Program(module="stayfinite.recipes.sft", what="train an adapter, the same as `stayfinite train sft`"),
        "test": Program(
            module="stayfinite.recipes.chat.testing", what="ask held-out questions: accuracy and answer rate"
        ),
        "chat": Program(module="stayfinite.recipes.chat.chatting", what="ask a trained adapter yourself"),
        "datagen": Program(
            module="stayfinite.recipes.chat.sampling",
            what="sample several solutions per answer, keep the correct ones",
        ),
    },
)


def run(arguments: Sequence[str]) -> int:
    """Run a verb; see `Programs.run` for exit codes."""
    return PROGRAMS.run(arguments)
