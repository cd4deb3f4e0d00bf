"""The code of the page runs as it is written there, in two processes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from stage import play

PAGE = Path(__file__).parents[3] / "docs" / "integrations" / "deepspeed.md"


def main(place: str) -> None:
    """Run by each rank."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.chdir(place)
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(compile(block, PAGE.name, "exec"), names)


@pytest.mark.slow
def test_the_code_of_the_page_runs(tmp_path):
    pytest.importorskip("deepspeed", reason="make engines")
    (place := tmp_path / "page").mkdir()
    played = play("integrations.deepspeed.test_page", {"page": (place,)}, tmp_path / "stage", ranks=2)["page"]
    played.check()
    assert "step 12 was refused; skipped so far: 1" in played.said
    assert "goes on after step 20" in played.said
    assert (place / "runs" / "first" / "steps.jsonl").exists()
