"""As `recipe_job`, for grpo: what is said to a question depends on the question alone, not on who else is asked."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import torch

import recipe_job
from stayfinite.recipes.chat.evaluating import generate_tokens
from stayfinite.recipes.policy import groups


def one_by_one(model: Any, prompting: Any, questions: Sequence[str], **options: Any) -> list[list[int]]:
    found = []
    for question in questions:
        torch.manual_seed(zlib.crc32(question.encode()))
        found += generate_tokens(model, prompting, [question], **options)
    return found


def main(recipe: str, config: str, kill_at: str) -> int:
    groups.generate_tokens = one_by_one
    return recipe_job.main(recipe, config, kill_at)
