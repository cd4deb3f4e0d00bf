"""Played on a stage: a training on pairs of images, killed at one of its losses if asked to."""

from __future__ import annotations

from pathlib import Path

from dying import die_with_a_checkpoint
from image_pairs import small_settings
from stayfinite.recipes.compare import train
from stayfinite.recipes.images.losses import Comparison


def main(directory: str, kill_at: str) -> None:
    calls, plain = 0, Comparison.loss

    def counted(self: Comparison, batch: object) -> object:
        nonlocal calls
        calls += 1
        if calls == int(kill_at):
            die_with_a_checkpoint()
        return plain(self, batch)  # type: ignore[arg-type]

    Comparison.loss = counted  # type: ignore[method-assign,assignment]
    train(small_settings(Path(directory), epochs=2, tuning="lora", lora_dropout=0.1, checkpoint_steps=2))
