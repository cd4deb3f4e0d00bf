"""The code of the README and of the guard's page is run as it stands there, on a small real training."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from stayfinite import Policy

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "guard.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README + PAGE, flags=re.DOTALL | re.MULTILINE)


class Doubling(nn.Module):
    """Learns to double a number; returns its loss as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        return SimpleNamespace(loss=nn.functional.mse_loss(self.layer(x), labels))


def names() -> dict[str, Any]:
    """What the blocks take for granted."""
    torch.manual_seed(0)
    model = Doubling()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    x = torch.randn(40, 4, 1)

    def compute_loss(*given: Any) -> torch.Tensor:
        return model(**given[-1]).loss

    return {
        "model": model, "optimizer": optimizer, "scheduler": torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0),
        "scaler": None, "loader": [{"x": row, "labels": 2 * row} for row in x], "compute_loss": compute_loss,
        "epochs": 1, "Policy": Policy,
    }  # fmt: skip


def block_with(words: str) -> str:
    (found,) = {block for block in BLOCKS if words in block}
    return found


def test_the_readme_is_read_in_a_minute():
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize(
    "words", ["loss = compute_loss(model, batch)", "guard.resume()", "forward=lambda batch: model(**batch).loss"]
)
def test_a_loop_of_the_pages_trains(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = names()
    code = block_with(words)
    exec(code if "import Guard" in code else f"from stayfinite import Guard\n{code}", space)
    space["guard"].close()
    lines = (tmp_path / "runs" / "first" / "steps.jsonl").read_text().splitlines()
    assert len(lines) == 40
    assert abs(float(space["model"].layer.weight.detach()) - 2.0) < 1.0


def test_the_line_for_accelerate_guards_a_loop_that_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    from accelerate import Accelerator

    space = names()
    accelerator = space["accelerator"] = Accelerator(cpu=True)
    space["model"], space["optimizer"] = accelerator.prepare(space["model"], space["optimizer"])
    exec(block_with("accelerate_guard"), space)
    space["loader"][7]["x"] = torch.full((4, 1), float("nan"))
    for batch in space["loader"]:
        accelerator.backward(space["model"](**batch).loss)
        space["optimizer"].step()
        space["optimizer"].zero_grad()
    space["guard"].close()
    assert all(bool(p.isfinite().all()) for p in space["model"].parameters())


def test_the_line_for_transformers_stands_in_a_trainer(tmp_path):
    from transformers import Trainer, TrainingArguments

    from tiny_trainers import Tokens, tiny_t5

    args = TrainingArguments(
        str(tmp_path / "out"), max_steps=3, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    space = {"Trainer": Trainer, "model": tiny_t5(vocab_size=32), "args": args, "data": Tokens()}
    exec(block_with("callbacks=[StayFinite()]"), space)
    space["trainer"].train()
    assert len((tmp_path / "out" / "stayfinite" / "steps.jsonl").read_text().splitlines()) == 3


def test_what_readme_installs_for_the_recipes_reads_a_tokenizer_that_they_train() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert {"sentencepiece", "protobuf"} <= set(extras["project"]["optional-dependencies"]["hf"])


def test_the_badges_say_what_is_true():
    drawn = runpy.run_path(str(ROOT / "docs" / "images" / "badges.py"))
    for name, svg in drawn["badges"]().items():
        assert f"docs/images/{name}" in README
        kept = (ROOT / "docs" / "images" / name).read_text(encoding="utf-8")
        if name == "badge_tests.svg":  # at least as many as it says; it need not be drawn again for every test
            kept_count, count = (int(re.search(r": ([\d,]+)\+", text)[1].replace(",", "")) for text in (kept, svg))
            assert count >= kept_count
        else:
            assert kept == svg, "run: python docs/images/badges.py"
