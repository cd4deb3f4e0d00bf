from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from recipe_job import quiet
from run_files import lines_of
from stayfinite.autopsy.incidents.build import load_build
from stayfinite.errors import NotReady, UsageError
from stayfinite.recipes import sft
from stayfinite.recipes.chat.adapters import read_weights
from stayfinite.recipes.chat.testing import Examine, examine
from stayfinite.recipes.grpo import Grpo, settled, train
from stayfinite.recipes.running import loop


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuning that has learned the tags and little else."""
    place = tmp_path_factory.mktemp("grpo") / "sft"
    few: dict[str, Any] = {"rows": 960, "held_out": 8, "epochs": 1, "eval_epochs": 2, "samples": 0, "rank": 8}
    sft.train(replace(sft.settled(sft.Sft()), **few, check="off", device="cpu", output_dir=str(place)), quiet)
    return place


def small(start: Path, output: Path, **more: Any) -> Grpo:
    """A training of a few steps."""
    settings: dict[str, Any] = {
        "start": str(start), "rows": 64, "held_out": 8, "steps": 4, "prompts": 4, "group_size": 4, "eval_steps": 4,
        "samples": 0, "check": "off", "device": "cpu", "output_dir": str(output),
    }  # fmt: skip
    return Grpo(**(settings | more))


@pytest.fixture(scope="session")
def run(start: Path) -> Path:
    """The directory of a finished run, to be read and not to be written to."""
    place = start.parent / "run"
    train(small(start, place, check="warn", kl=0.01), quiet)
    return place


def test_a_run_leaves_what_it_promises(start: Path, run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    assert result["steps"] == 4
    assert [each["step"] for each in result["evaluations"]] == [0, 4]
    assert 0 <= result["scores"]["accuracy"] <= result["scores"]["answer_rate"] <= 1
    assert result["start"]["questions"] == result["scores"]["questions"] == 8
    record = json.loads((run / "run.json").read_text())
    assert (record["recipe"], record["steps"], record["config"]["group_size"]) == ("grpo", 4, 4)
    steps = lines_of(run / "steps.jsonl")
    assert {"reward", "equal_groups", "ratio_max", "kl", "entropy", "length"} <= set(steps[-1]["signals"])
    # The trained adapter is like any other, and finds the base of its start.
    assert read_weights(run / "best").keys() == read_weights(start / "best").keys()
    asked = examine(Examine(adapter=str(run / "best"), rows=8, device="cpu", samples=0), quiet)
    assert asked["accuracy"] == result["scores"]["accuracy"]


def test_replay_rebuilds_the_model_from_the_run_directory_alone(run: Path) -> None:
    model, forward = load_build(None, run / "incidents" / "0001")
    ids = torch.arange(12)[None]
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    batch |= {"old": torch.zeros(1, 11), "advantages": torch.ones(1)}
    assert bool(forward(batch).isfinite())
    assert any("lora_A" in name for name, _ in model.named_parameters())


@pytest.mark.slow
def test_a_finished_run_that_is_started_again_trains_no_further(start: Path, run: Path, tmp_path: Path) -> None:
    place = tmp_path / "again"
    shutil.copytree(run, place)
    before = (place / "best" / "adapter_model.safetensors").read_bytes()
    assert train(small(start, place, check="warn", kl=0.01), quiet).steps == 4
    assert (place / "best" / "adapter_model.safetensors").read_bytes() == before


def test_the_start_stays_the_best_where_nothing_was_better(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Worse(loop.Best):
        def judge(self, step: int, scores: Any, save: Any = None) -> bool:
            return super().judge(step, dict(scores) | {"merit": -step}, save)

    monkeypatch.setattr(loop, "Best", Worse)
    train(small(start, tmp_path / "run", steps=2), quiet)
    one, two = read_weights(start / "best"), read_weights(tmp_path / "run" / "best")
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.slow
def test_a_run_without_a_sign_has_the_same_bits_steered_or_not(start: Path, run: Path, tmp_path: Path) -> None:
    train(small(start, tmp_path / "free", check="warn", kl=0.01, steer=False), quiet)
    steered, free = (lines_of(place / "steps.jsonl") for place in (run, tmp_path / "free"))
    # Each step's numbers come of the weights that the steps before it have left.
    for name in ("loss", "grad_norm", "signals"):
        assert [step[name] for step in steered] == [step[name] for step in free]


@pytest.mark.parametrize(("name", "value"), [("seed", 1), ("group_size", 8), ("kl", 0.0), ("temperature", 0.7)])
def test_a_run_is_not_gone_on_with_other_settings(
    start: Path, run: Path, tmp_path: Path, name: str, value: Any
) -> None:
    place = tmp_path / "again"
    shutil.copytree(run, place)
    with pytest.raises(UsageError, match=f"holds a run with other settings: .*{name}"):
        train(replace(small(start, place, check="warn", kl=0.01), **{name: value}), quiet)


def test_a_start_that_is_never_rewarded_is_refused_before_the_first_step(start: Path, tmp_path: Path) -> None:
    data = tmp_path / "impossible.jsonl"
    data.write_text(
        "".join(json.dumps({"question": f"How many g are {n} kg?", "answer": "x"}) + "\n" for n in range(99))
    )
    config = small(start, tmp_path / "run", train=(str(data),), check="stop", answer_reward=0.0)
    with pytest.raises(NotReady, match="no gradient: all 4 answers to every question get the same reward"):
        train(config, quiet)
    said: list[str] = []
    train(replace(config, check="warn", steps=2), said.append)
    assert any("get the same reward" in line for line in said)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0), ("group_size", 1), ("temperature", 0.0), ("clip", 0.0), ("clip", 1.0), ("kl", -0.1),
        ("steps", 0), ("updates", 0), ("prompts", 0), ("answer_reward", 1.0), ("minutes", float("nan")),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_work_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, value: Any
) -> None:
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')}"):
        train(replace(small(tmp_path, tmp_path / "run"), **{name: value}), quiet)
    assert not (tmp_path / "run").exists()


def test_a_start_without_an_adapter_and_a_start_beside_a_model_are_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no adapter"):
        train(small(tmp_path / "nothing", tmp_path / "run"), quiet)
    with pytest.raises(UsageError, match="--start and --model"):
        train(small(tmp_path, tmp_path / "run", model="smollm2"), quiet)


def test_fewer_questions_than_a_sampling_asks_are_refused(start: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="64 training questions, but one sampling round needs 80"):
        train(small(start, tmp_path / "run", prompts=40), quiet)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_built_in_run_is_clearly_better_than_its_start(tmp_path: Path) -> None:
    result = train(settled(Grpo(device="cpu", output_dir=str(tmp_path))), quiet)
    assert result.answer_rate >= 0.98
    assert result.accuracy >= result.start_accuracy + 0.1
    events = (tmp_path / "events.jsonl").read_text()
    assert "not-finite" not in events
