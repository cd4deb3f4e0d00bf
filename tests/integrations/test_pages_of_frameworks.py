"""The code on the pages for users runs as it is written there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState

from lightning_training import LIGHTNING_SAYS

PAGES = Path(__file__).parents[2] / "docs" / "integrations"

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Starting from v1.9.0, .tensorboardX. has been removed"),
]


def code_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["lightning.md", "accelerate.md", "loggers.md"])
def test_the_code_of_a_page_runs(tmp_path, monkeypatch, capsys, page):
    monkeypatch.chdir(tmp_path)
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    torch.manual_seed(0)
    names: dict[str, object] = {}
    blocks = code_of(page)
    assert blocks
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)
    said = capsys.readouterr().out
    if page == "lightning.md":
        assert "the framework asks before each optimizer step" in said
        assert "checkpoints are the framework's own" in said
        assert "tensor(" in said
        assert list(tmp_path.rglob("stayfinite/steps.jsonl"))
        assert (tmp_path / "runs" / "fabric" / "steps.jsonl").exists()
    elif page == "accelerate.md":
        assert said.count("this step was refused") == 2
        assert "[4]" in said
        assert "bad-data-row" in (tmp_path / "runs" / "explained" / "events.jsonl").read_text()
        assert (tmp_path / "runs" / "accelerate" / "stayfinite" / "steps.jsonl").exists()
    else:
        assert "step 8: veto" in said
        assert list((tmp_path / "board").iterdir())
