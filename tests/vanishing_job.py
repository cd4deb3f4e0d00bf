"""As `recipe_job`; after the first step the files vanish that are listed in ``CONFIG.vanishing``, a line each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import recipe_job
from stayfinite.guard.guard import Guard


def main(recipe: str, config: str, kill_at: str) -> int:
    step = Guard.step
    files = [Path(line) for line in Path(f"{config}.vanishing").read_text().splitlines()]

    def step_and_lose(self: Guard, *args: Any, **kwargs: Any) -> None:
        step(self, *args, **kwargs)
        if self._step == 1 and os.environ["RANK"] == "1":
            for file in files:
                file.unlink()

    Guard.step = step_and_lose  # type: ignore[method-assign]
    return recipe_job.main(recipe, config, kill_at)
