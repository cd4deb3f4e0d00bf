"""Each fault with a healthy look-alike: what the program's check or guard says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from stayfinite import Guard, Policy
from stayfinite.errors import NotReady
from stayfinite.recipes.chat.adapters import attach
from stayfinite.recipes.chat.bases import build_base, train_tokenizer
from stayfinite.recipes.chat.losses import loss_of
from stayfinite.recipes.chat.prompts import IGNORED, Padding, Prompting, rows_in_words
from stayfinite.recipes.chat.questions import Question
from stayfinite.recipes.running.launch import look_before_start, scaler_for
from stayfinite.recipes.running.optimizing import optimizer_for

CPU = torch.device("cpu")


class Bench:
    """A model with a fresh adapter, and a batch."""

    def __init__(self, *, masked: bool = False, half: bool = False) -> None:
        torch.manual_seed(0)
        self.tokenizer = train_tokenizer(["How many m are 3 km?"])
        self.model = attach(build_base("tiny", self.tokenizer).model, rank=4, alpha=8, dropout=0.0, head=True).train()
        if half:
            self.model.half()
        self.optimizer = optimizer_for(self.model, lr=1e-3, weight_decay=0.0, device=CPU)
        self.forward = loss_of(self.model, CPU)
        self.batch = self.rows(masked=masked)

    def rows(self, *, masked: bool = False) -> dict[str, torch.Tensor]:
        prompting = Prompting(tokenizer=self.tokenizer)
        questions = [Question(text=f"How many m are {number} km?", answer=f"{number}000") for number in range(1, 5)]
        batch = Padding(pad=self.tokenizer.pad_token_id)(prompting.examples(questions, 64))
        if masked:
            batch["labels"].fill_(IGNORED)
        return batch

    def look(self, directory: Path, precision: Any = "fp32") -> Any:
        return look_before_start(
            self.model, self.optimizer, self.batch, self.forward, precision=precision,
            scaler=scaler_for(precision, CPU), then="stop", directory=directory, say=lambda _: None, steps=2,
        )  # fmt: skip


def test_the_check_is_quiet_on_a_healthy_start(tmp_path: Path) -> None:
    assert Bench().look(tmp_path).verdict == "healthy"


def test_the_check_names_a_batch_whose_answers_are_all_masked(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="all-labels-masked"):
        Bench(masked=True).look(tmp_path)


@pytest.mark.slow
def test_the_check_names_fp16_weights_trained_in_fp16(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="double-fp16|pure-fp16-weights"):
        Bench(half=True).look(tmp_path, "fp16")


def test_a_batch_of_masked_answers_in_the_middle_is_refused_and_explained_and_the_run_goes_on(tmp_path: Path) -> None:
    bench = Bench()
    with Guard(
        bench.model, bench.optimizer, run_dir=tmp_path, forward=bench.forward, policy=Policy(keep_frozen=False),
        describe=lambda batch: rows_in_words(bench.tokenizer, batch),
    ) as guard:  # fmt: skip
        for step in range(6):
            guard.step(guard.forward(bench.rows(masked=step == 3)))
        actions = [decision.action for decision in guard.decisions]
    assert actions[3] == "veto"
    assert all(action in ("accept", "clip") for action in actions[:3] + actions[4:])
    autopsy = json.loads((tmp_path / "incidents" / "0001" / "autopsy.json").read_text())
    assert "all-labels-masked" in json.dumps(autopsy)
    incident = json.loads((tmp_path / "incidents" / "0001" / "incident.json").read_text())
    assert "How many m are 1 km?" in json.dumps(incident["rows"])
    assert all(bool(parameter.isfinite().all()) for parameter in bench.model.parameters())
