"""Optimizer, schedule, groups, place, records and going on."""

import json
import math
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest
import torch

from stayfinite.cli.train import RECIPES
from stayfinite.errors import UsageError
from stayfinite.recipes.running.launch import goes_on, scaler_for
from stayfinite.recipes.running.loop import grouped
from stayfinite.recipes.running.optimizing import steps_of
from stayfinite.recipes.running.place import choose_device, choose_precision
from stayfinite.recipes.running.processes import place_of_process
from stayfinite.recipes.running.records import (
    read_launch,
    seconds_of,
    settings_of,
    write_end,
    write_launch,
    write_result,
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    train: tuple[str, ...] = ()
    epochs: int = 3


def test_the_last_group_of_an_epoch_may_be_smaller():
    assert list(grouped(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert (steps_of(5, 2, 3), steps_of(10, 4, 3)) == (9, 9)
    assert list(grouped([], 2)) == []


def test_no_batch_is_taken_once_training_is_over():
    source, over = iter(range(9)), iter([False, False, True])
    assert list(grouped(source, 2, over=lambda: next(over))) == [[0, 1], [2, 3]]
    assert next(source) == 4


def test_a_cpu_computes_in_fp32_and_what_is_asked_for_is_taken():
    said = []
    assert choose_precision("auto", torch.device("cpu"), said.append) == "fp32"
    assert said == ["computing in fp32 on cpu"]
    assert choose_precision("bf16", torch.device("cpu"), said.append) == "bf16"


@pytest.mark.parametrize(("why", "expected"), [("", "fp16"), ("wo reaches 90,000", "fp32")])
def test_a_card_without_bf16_gets_fp16_only_where_it_is_proved_to_hold(monkeypatch, why, expected):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "an old card")
    said = []
    assert choose_precision("auto", torch.device("cuda"), said.append, lambda: why) == expected
    assert why in said[0]


def test_only_fp16_has_a_loss_scale():
    assert scaler_for("bf16", torch.device("cpu")) is None
    assert scaler_for("fp16", torch.device("cpu")) is not None


@pytest.mark.parametrize("name", ["abacus", "cuda:x"])
def test_a_device_that_there_is_not_is_refused(name):
    with pytest.raises(UsageError, match=f"--device {name}"):
        choose_device(name)


def test_a_process_alone_is_the_first():
    with place_of_process("cpu") as place:
        assert (place.first, place.count, place.from_first({"a": 1})) == (True, 1, {"a": 1})


def test_settings_come_back_from_run_json_and_what_the_guard_wrote_stays(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"version": 1, "launches": [{"seed": 0}]}))
    config = Settings(train=("a.csv",))
    write_launch(tmp_path, "translate", config, steps=7)
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["launches"], record["steps"], record["recipe"]) == ([{"seed": 0}], 7, "translate")
    assert settings_of(Settings, read_launch(tmp_path, "translate")) == config
    with pytest.raises(UsageError, match="is from translate, not mt5"):
        read_launch(tmp_path, "mt5")


def test_a_result_has_no_number_that_json_does_not_know(tmp_path):
    write_result(tmp_path, {"loss": math.nan, "evaluations": [{"bleu": math.inf}]})
    assert json.loads((tmp_path / "result.json").read_text()) == {
        "version": 1, "loss": None, "evaluations": [{"bleu": None}],
    }  # fmt: skip


def begun(tmp_path, config):
    write_launch(tmp_path, "translate", config)
    (tmp_path / "checkpoints" / "step-00000005").mkdir(parents=True)


def test_a_run_without_a_checkpoint_starts_afresh_whatever_its_settings(tmp_path):
    assert not goes_on(tmp_path, "translate", Settings(), {"train"}, print)
    write_launch(tmp_path, "translate", Settings(train=("a",)))
    assert not goes_on(tmp_path, "translate", Settings(train=("b",)), {"train"}, print)


def test_other_data_is_refused_and_nothing_is_lost(tmp_path):
    begun(tmp_path, Settings(train=("a.csv",)))
    with pytest.raises(UsageError, match=r"holds a run with other settings: train \['a.csv'\] -> \['b.csv'\]"):
        goes_on(tmp_path, "translate", Settings(train=("b.csv",)), {"train"}, print)


def test_other_settings_are_said(tmp_path):
    begun(tmp_path, Settings(epochs=3))
    said = []
    assert goes_on(tmp_path, "translate", Settings(epochs=5), {"train"}, said.append)
    where = f"resuming the run in {tmp_path}"
    assert said == [where, "resuming with changed settings: epochs 3 -> 5"]
    said.clear()
    assert goes_on(tmp_path, "translate", Settings(epochs=3), {"train"}, said.append)
    assert said == [where]


def test_a_finished_run_is_said_to_be_finished_and_what_takes_it_further(tmp_path):
    begun(tmp_path, Settings(epochs=3))
    write_result(tmp_path, {"steps": 5})
    said = []
    assert goes_on(tmp_path, "translate", Settings(epochs=3), {"train"}, said.append)
    assert said == [f"the run in {tmp_path} is finished after 5 steps. To continue, raise --epochs"]
    said.clear()
    assert goes_on(tmp_path, "translate", Settings(epochs=5), {"train"}, said.append)
    assert said[0] == f"resuming the run in {tmp_path}"
    (tmp_path / "checkpoints" / "step-00000007.1").mkdir()  # it was resumed since, and killed
    said.clear()
    assert goes_on(tmp_path, "translate", Settings(epochs=3), {"train"}, said.append)
    assert said == [f"resuming the run in {tmp_path}"]


@pytest.mark.parametrize("name", RECIPES)
def test_evaluations_of_other_rows_are_never_compared_with_the_best_so_far(name):
    module = import_module(f"stayfinite.recipes.{name}")
    known = getattr(module, name.capitalize()).__dataclass_fields__
    assert {"eval_rows", "eval_blocks", "val", "metric"} & set(known) <= set(module.FIXED)


def events(tmp_path, *times):
    lines = [json.dumps({"time": f"2026-01-01T00:{at}+00:00", "event": event}) for event, at in times]
    (tmp_path / "events.jsonl").write_text("\n".join([*lines, '{"time": "2026-01-0']), encoding="utf-8")


def test_the_seconds_of_a_run_are_those_of_all_its_processes(tmp_path):
    assert seconds_of(tmp_path) == 0
    first = [("start", "00:00"), ("checkpoint", "00:30")]  # killed
    second = [("checkpoint-passed-over", "50:00"), ("resume", "50:01"), ("restart", "50:02"), ("closed", "50:11")]
    events(tmp_path, *first, *second)
    assert seconds_of(tmp_path) == 40
    events(tmp_path, *first, *second, ("resume", "55:00"))  # nothing was left to do
    assert seconds_of(tmp_path) == 40
    events(tmp_path, *first, ("restart", "40:00"), ("checkpoint", "40:05"), *second)  # from the beginning
    assert seconds_of(tmp_path) == 15


def test_it_is_said_where_a_run_is_written_and_whether_it_goes_on(tmp_path):
    said = []
    assert not goes_on(tmp_path / "new", "translate", Settings(), {"train"}, said.append)
    begun(tmp_path, Settings())
    shutil.rmtree(tmp_path / "checkpoints")
    assert not goes_on(tmp_path, "translate", Settings(), {"train"}, said.append)
    assert said == [
        f"writing to {tmp_path / 'new'}; resume with the same command",
        f"writing to {tmp_path}: its run has no checkpoint yet, starting from the beginning",
    ]


def test_the_run_of_another_program_is_refused(tmp_path):
    begun(tmp_path, Settings())
    with pytest.raises(UsageError, match="is from translate, not mt5"):
        goes_on(tmp_path, "mt5", Settings(), (), print)


def test_a_launch_says_when_its_time_is_over_and_not_when_that_of_an_earlier_one_was(tmp_path):
    write_launch(tmp_path, "translate", Settings(), steps=7)
    before = datetime.now(UTC)
    write_end(tmp_path, 30.0, used=10.0)
    record = json.loads((tmp_path / "run.json").read_text())
    ends, left, second = datetime.fromisoformat(record["ends"]), timedelta(minutes=20), timedelta(seconds=1)
    assert (record["steps"], record["minutes"]) == (7, 30.0)
    assert before + left - second <= ends <= datetime.now(UTC) + left
    write_launch(tmp_path, "translate", Settings())
    assert not {"steps", "minutes", "ends"} & set(json.loads((tmp_path / "run.json").read_text()))


@pytest.mark.parametrize("minutes", [None, math.inf, math.nan, 1e300])
def test_a_training_that_no_time_ends_says_none(tmp_path, minutes):
    write_launch(tmp_path, "translate", Settings())
    write_end(tmp_path, minutes)
    assert "ends" not in json.loads((tmp_path / "run.json").read_text())


def test_more_time_used_than_there_was_is_over_now(tmp_path):
    write_launch(tmp_path, "translate", Settings())
    before = datetime.now(UTC)
    write_end(tmp_path, 1.0, used=3.0)
    ends = datetime.fromisoformat(json.loads((tmp_path / "run.json").read_text())["ends"])
    assert before - timedelta(seconds=1) <= ends <= datetime.now(UTC)
