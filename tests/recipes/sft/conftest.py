from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stayfinite.recipes.sft import Sft, settled, train


def small(output: Path, **more: Any) -> Sft:
    """A training of a few steps."""
    settings: dict[str, Any] = {
        "rows": 48, "held_out": 8, "epochs": 2, "batch_size": 16, "eval_epochs": 2, "samples": 1, "rank": 4,
        "check": "off", "device": "cpu", "output_dir": str(output),
    }  # fmt: skip
    return replace(settled(Sft(model=more.get("model", "tiny"), task=more.get("task", "auto"))), **(settings | more))


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a finished run, to be read and not to be written to."""
    place = tmp_path_factory.mktemp("sft") / "run"
    train(small(place, base_score=True, check="stop"), lambda _: None)
    return place
