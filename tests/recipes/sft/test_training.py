from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recipe_job import quiet, weights_of
from stayfinite.autopsy.incidents.build import load_build
from stayfinite.errors import UsageError
from stayfinite.recipes import sft
from stayfinite.recipes.chat.adapters import adapted, base_of, is_fresh
from stayfinite.recipes.running import timing
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.settings import read_settings
from stayfinite.recipes.sft import Sft, quick, settled, train

from .conftest import small


def test_a_run_leaves_what_it_promises(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    assert result["last_loss"] < result["first_loss"]
    assert result["steps"] == 6
    assert 0 <= result["scores"]["accuracy"] <= result["scores"]["answer_rate"] <= 1
    assert result["base"]["questions"] == result["scores"]["questions"] == 8
    assert result["scores"]["loss"] < result["base"]["loss"]
    record = json.loads((run / "run.json").read_text())
    assert (record["recipe"], record["steps"], record["config"]["rank"]) == ("sft", 6, 4)
    assert json.loads((run / "check.json").read_text())["verdict"] == "healthy"
    assert not is_fresh(weights_of(run))
    # The checkpoint holds the adapter and its moments, and nothing of the base.
    held = {name for file in (run / "checkpoints").rglob("*.safetensors") for name in load_file(file)}
    assert any("lora_A" in name for name in held)
    assert not any("embed_tokens" in name or "base_layer" in name for name in held)


def test_the_program_says_what_is_trained_and_supervised_and_when_its_time_is_over(tmp_path: Path) -> None:
    said: list[str] = []
    train(small(tmp_path, epochs=1, minutes=60), said.append)
    text = "\n".join(said)
    assert re.search(r"training [\d,]+ parameters", text)
    assert "has random weights" not in text  # which the built-in task is made for
    assert "tokens supervised" in text
    assert "48 questions to train on, 8 held out" in text
    plan = json.loads((tmp_path / "run.json").read_text())
    assert (plan["steps"], plan["minutes"]) == (3, 60)
    assert 55 < (datetime.fromisoformat(plan["ends"]) - datetime.now(UTC)).total_seconds() / 60 <= 60


def test_a_finished_run_that_is_started_again_trains_no_further_and_keeps_its_adapter(
    run: Path, tmp_path: Path
) -> None:
    place = tmp_path / "again"
    shutil.copytree(run, place)
    before = (place / "best" / "adapter_model.safetensors").read_bytes()
    result = train(small(place, base_score=True), quiet)
    assert result.steps == 6
    assert (place / "best" / "adapter_model.safetensors").read_bytes() == before


def test_a_trained_adapter_without_checkpoints_is_not_written_over(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "best", tmp_path / "best")
    with pytest.raises(UsageError, match="holds a trained adapter without a checkpoint"):
        train(small(tmp_path), quiet)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best"]


def test_training_goes_on_from_an_adapter(run: Path, tmp_path: Path) -> None:
    config = small(
        tmp_path, model=str(run / "base"), task="metric", adapter=str(run / "best"), epochs=1, base_score=True
    )
    result = train(config, quiet)
    # What it starts from is the trained adapter, not the bare base.
    started = json.loads((tmp_path / "base_scores.json").read_text())["loss"]
    assert started == pytest.approx(json.loads((run / "result.json").read_text())["scores"]["loss"], rel=1e-4)
    assert result.steps == 3


def test_fp16_is_refused_for_training(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="training is not supported in fp16") as caught:
        train(small(tmp_path, precision="fp16"), quiet)
    assert "bf16" in caught.value.fix
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_base_that_was_saved_in_fp16_is_trained_in_full_precision(run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(run / "base", dtype=torch.float16)
    model.save_pretrained(tmp_path / "half")
    AutoTokenizer.from_pretrained(run / "base").save_pretrained(tmp_path / "half")
    result = train(small(tmp_path / "run", model=str(tmp_path / "half"), task="metric", epochs=1), quiet)
    assert result.last_loss == pytest.approx(result.last_loss)  # finite
    assert {tensor.dtype for tensor in weights_of(tmp_path / "run").values()} == {torch.float32}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0), ("learning_rate", -1e-3), ("learning_rate", float("nan")), ("rank", 0), ("epochs", 0),
        ("batch_size", 0), ("dropout", 1.0), ("val_share", 1.5), ("max_grad_norm", 0.0), ("held_out", 0),
        ("weight_decay", -0.1), ("minutes", float("nan")), ("max_length", 7), ("samples", -1), ("patience", -1),
        ("checkpoint_steps", 0), ("keep_checkpoints", 0), ("logging_steps", 0),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_work_is_refused_before_anything_is_written(
    tmp_path: Path, name: str, value: Any
) -> None:
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')}"):
        train(replace(small(tmp_path / "run"), **{name: value}), quiet)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("held", ["train", "val"])
def test_an_answer_that_does_not_fit_stops_the_run_with_its_row(run: Path, tmp_path: Path, held: str) -> None:
    short, long = tmp_path / "short.jsonl", tmp_path / "long.jsonl"
    short.write_text('{"question": "a", "answer": "1"}\n')
    long.write_text('{"question": "a", "answer": "1"}\n{"question": "b", "answer": "' + "1" * 300 + '"}\n')
    settings = {"model": str(run / "base"), "train": (str(short),), "val": (str(short),), "max_length": 128}
    config = small(tmp_path / "run", **(settings | {held: (str(long),)}))
    with pytest.raises(UsageError, match=r"long.jsonl:2: its answer of"):
        train(config, quiet)
    assert not (tmp_path / "run").exists()


def test_own_questions_with_words_for_answers_are_learned(tmp_path: Path) -> None:
    data = tmp_path / "colours.csv"
    data.write_text("question,answer\n" + "".join(f"Colour of {n}?,{'red' if n % 2 else 'blue'}\n" for n in range(60)))
    said: list[str] = []
    result = train(small(tmp_path / "run", train=(str(data),), learning_rate=5e-3, accumulation=2), said.append)
    assert result.last_loss < result.first_loss
    # Nobody's own data meets a base without any knowledge unknowingly.
    assert any("has random weights" in line and "--model" in line for line in said)


def test_replay_rebuilds_the_model_from_the_run_directory_alone(run: Path) -> None:
    model, forward = load_build(None, run / "incidents" / "0001")
    names = {name for name, _ in model.named_parameters()}
    assert any("lora_A" in name for name in names)
    ids = torch.arange(12)[None]
    assert bool(forward({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}).isfinite())


@pytest.mark.slow
def test_a_quick_look_is_healthy_on_the_built_in_task_and_not_on_a_wild_one() -> None:
    flags = ["--rows", "32", "--batch-size", "8", "--device", "cpu"]
    assert quick(flags).exit_code == 0
    for rate in ("1", "50", "1e8"):  # one runs away, the others fall to where every question gets the same answer
        found = quick([*flags, "--learning-rate", rate])
        assert found.exit_code == 1
        assert [each.cause for each in found.findings if each.severity == "error"] == ["lr-too-high"]


def test_a_quick_look_does_not_mind_what_lies_in_the_output_directory(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "best", tmp_path / "best")
    flags = ["--output-dir", str(tmp_path), "--rows", "16", "--rank", "4", "--device", "cpu"]
    assert quick(flags).lines
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_what_is_asked_for_counts_even_where_it_is_the_usual_default() -> None:
    def read(*flags: str) -> Sft:
        return read_settings(Sft, flags, "sft", settled)

    assert (read().batch_size, read().task) == (32, "metric")
    assert read("--batch-size", str(Sft().batch_size)).batch_size == Sft().batch_size
    assert read("--model", "smollm2").task == "units"
    assert read("--train", "own.csv").batch_size == Sft().batch_size


@pytest.mark.parametrize(
    ("name", "value"), [("rank", 8), ("seed", 1), ("train", ("other.csv",)), ("system", "Be brief."), ("batch_size", 8)]
)
def test_a_run_is_not_gone_on_with_other_data_another_model_or_another_order(
    run: Path, tmp_path: Path, name: str, value: Any
) -> None:
    place = tmp_path / "again"
    shutil.copytree(run, place)
    before = {path: path.read_bytes() for path in place.rglob("*.json")}
    with pytest.raises(UsageError, match=f"holds a run with other settings: .*{name}"):
        train(replace(small(place, base_score=True, check="stop"), **{name: value}), quiet)
    assert {path: path.read_bytes() for path in place.rglob("*.json")} == before


@pytest.mark.slow
def test_a_run_that_goes_on_asks_nothing_again_that_it_has_asked(run: Path, tmp_path: Path) -> None:
    place, said = tmp_path / "again", []
    shutil.copytree(run, place)
    train(small(place, base_score=True, check="stop"), said.append)
    assert "is finished after" in said[0]
    assert not [line for line in said if line.startswith("epoch")]
    assert (place / "evaluations.json").read_bytes() == (run / "evaluations.json").read_bytes()
    (place / "evaluations.json").unlink()  # as if it had been killed before
    train(small(place, base_score=True, check="stop"), said.append)
    assert [line for line in said if line.startswith("epoch")]


def test_a_resumed_run_ends_with_a_checkpoint_of_its_last_step(tmp_path: Path) -> None:
    for steps in (1, 4):  # the guard counts from step 1: its own checkpoint is at step 3
        train(small(tmp_path, max_steps=steps, checkpoint_steps=2, eval_rows=1), quiet)
    assert max(path.name for path in (tmp_path / "checkpoints").iterdir()) == "step-00000004"


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that goes on by a second with each step, and otherwise when it is told to."""
    now = [0.0]

    class SecondAStep(timing.TimedSchedule):
        def step(self) -> None:
            super().step()
            now[0] += 1.0

    monkeypatch.setattr(timing, "TimedSchedule", SecondAStep)
    monkeypatch.setattr(timing, "Clock", partial(timing.Clock, clock=lambda: now[0]))
    return now


@pytest.fixture
def ten_seconds(seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The same clock, with evaluations that take ten seconds."""
    asked = sft.evaluate

    def slow(*arguments: Any, **options: Any) -> Any:
        seconds[0] += 10.0
        return asked(*arguments, **options)

    monkeypatch.setattr(sft, "evaluate", slow)
    return seconds


@pytest.mark.usefixtures("ten_seconds")
def test_an_evaluation_counts_also_where_a_checkpoint_was_written_before_it(tmp_path: Path) -> None:
    settings = small(tmp_path, epochs=9, minutes=7 / 60, checkpoint_steps=3, eval_epochs=1)
    assert train(settings, quiet).steps == 3
    assert train(settings, quiet).steps == 3


@pytest.mark.parametrize(("eval_epochs", "evaluations"), [(None, 1), (1, 3)])
def test_with_minutes_an_evaluation_that_takes_over_a_tenth_of_the_time_is_left_to_the_end_unless_it_is_asked_for(
    tmp_path: Path, ten_seconds: list[float], monkeypatch: pytest.MonkeyPatch, eval_epochs: int | None, evaluations: int
) -> None:
    monkeypatch.setattr(sft, "EvaluationBudget", partial(sft.EvaluationBudget, clock=lambda: ten_seconds[0]))
    train(small(tmp_path, epochs=3, minutes=60, base_score=True, eval_epochs=eval_epochs), quiet)
    assert len(json.loads((tmp_path / "evaluations.json").read_text())["evaluations"]) == evaluations


@pytest.mark.usefixtures("seconds")
@pytest.mark.slow
def test_a_run_that_was_killed_has_the_minutes_that_are_left_and_one_whose_time_is_up_trains_no_further(
    tmp_path: Path,
) -> None:
    settings = small(tmp_path, epochs=9, minutes=7 / 60, checkpoint_steps=1, keep_checkpoints=20, eval_epochs=9)
    assert train(settings, quiet).steps == 7
    assert train(settings, quiet).steps == 7
    # As if it had been killed in the fifth step, long before its first evaluation.
    for place in (tmp_path / "checkpoints").glob("step-0000000[567]*"):
        shutil.rmtree(place)
    shutil.rmtree(tmp_path / "best")
    (tmp_path / "evaluations.json").unlink()
    said: list[str] = []
    assert train(settings, said.append).steps == 7
    assert "resumed after step 4" in said
    ends = datetime.fromisoformat(json.loads((tmp_path / "run.json").read_text())["ends"])
    assert ends < datetime.now(UTC) + timedelta(seconds=4)
    # As if it had been killed when its time was up, before the evaluation.
    shutil.rmtree(tmp_path / "best")
    (tmp_path / "evaluations.json").unlink()
    assert train(settings, quiet).steps == 7
    assert not is_fresh(weights_of(tmp_path))


@pytest.mark.parametrize("bits", ["8bit", "4bit"])
@pytest.mark.slow
def test_a_quantised_base_is_adapted(run: Path, tmp_path: Path, bits: Any) -> None:
    config = small(tmp_path, model=str(run / "base"), task="metric", bits=bits, epochs=1, rows=32)
    result = train(config, quiet)
    assert result.last_loss < result.first_loss
    assert not is_fresh(weights_of(tmp_path))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_built_in_task_is_learned(tmp_path: Path) -> None:
    result = train(settled(Sft(device="cpu", output_dir=str(tmp_path))), quiet)
    assert result.last_loss < result.first_loss / 2
    assert result.answer_rate >= 0.98
    assert result.accuracy >= 0.6
    events = (tmp_path / "events.jsonl").read_text()
    assert "not-finite" not in events


def test_a_small_set_has_small_steps_unless_others_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"question": "How many g is 2 kg?", "answer": "2000"}\n' * 1000)
    read = lambda *flags: read_settings(Sft, ["--train", str(file), *flags], "sft", settled)  # noqa: E731
    assert (read().accumulation, read().learning_rate, read().dropout) == (1, 5e-4, 0.0)
    assert read("--accumulation", "4").accumulation == 4
    file.write_text('{"question": "How many g is 2 kg?", "answer": "2000"}\n' * 20_000)
    assert (read().accumulation, read().learning_rate) == (4, 2e-4)
    assert read_settings(Sft, ["--train", str(tmp_path / "gone.jsonl")], "sft", settled).accumulation == 4


@pytest.mark.parametrize(("pages", "twice"), [(1 << 30, False), (1 << 10, True)])
def test_a_cpu_keeps_activations_where_they_fit(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int, *, twice: bool
) -> None:
    config = small(tmp_path, model=str(run / "base"), gradient_checkpointing=True)
    monkeypatch.setattr("os.sysconf", lambda name: pages if name == "SC_PHYS_PAGES" else 4096)
    device = torch.device("cpu")
    model = adapted(config, base_of(config, Place(device=device), ()), device, "fp32")
    assert bool(model.base_model.model.is_gradient_checkpointing) is twice
