"""Several real processes under torchrun: one decision for all, and nobody waits for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

JOB = Path(__file__).with_name("job.py")


def launch(ranks: int, kind: str, act: str, folder: Path) -> subprocess.CompletedProcess[str]:
    alone = [sys.executable]
    many = [*alone, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [*(many if ranks > 1 else alone), str(JOB), kind, act, str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_SHOW_CPP_STACKTRACES": "0"}
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=environment)


def train(ranks: int, kind: str, act: str, folder: Path) -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    done = launch(ranks, kind, act, folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"seen-{act}-{rank}.json").read_text()) for rank in range(ranks)]


def events(folder: Path, kind: str, name: str = "events.jsonl") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return [each for each in lines if each["event"] == kind]


def check_agreed(seen: list[dict[str, Any]]) -> None:
    for other in seen[1:]:
        for key in ("actions", "steps", "weights", "lr"):
            assert other[key] == seen[0][key], key


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_fault_on_one_rank_is_refused_on_all_and_the_rank_is_named(tmp_path, kind):
    seen = train(2, kind, "nan-loss", tmp_path)
    check_agreed(seen)
    assert [action == "veto" for action in seen[0]["actions"]] == [number == 5 for number in range(12)]
    (veto,) = events(tmp_path, "veto")
    assert veto["bad_ranks"] == [1]
    assert "rank 1" in veto["reason"]
    assert "2 ranks" in seen[0]["describe"]
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 12
    assert not (tmp_path / "events-rank00001.jsonl").exists()


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_bad_gradient_is_traced_to_its_rank_before_gradients_are_averaged(tmp_path, kind):
    check_agreed(train(2, kind, "nan-gradient", tmp_path))
    (veto,) = events(tmp_path, "veto")
    assert veto["code"] == "gradient-not-finite"
    assert veto["bad_ranks"] == [1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("act", ["nan-loss", "spike", "rollback"])
def test_four_ranks_agree(tmp_path, kind, act):
    seen = train(4, kind, act, tmp_path)
    check_agreed(seen)
    assert any(action == ("rollback" if act == "rollback" else "veto") for action in seen[0]["actions"])


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_all_ranks_go_back_together(tmp_path, kind):
    seen = train(2, kind, "rollback", tmp_path)
    check_agreed(seen)
    assert seen[0]["actions"][8:11] == ["veto", "veto", "rollback"]
    (event,) = events(tmp_path, "rollback")
    assert (event["from_step"], event["to_step"]) == (11, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp-device", "fsdp-device"])
def test_ranks_that_hear_of_a_step_late_act_on_it_at_the_same_step(tmp_path, kind):
    seen = train(2, kind, "rollback", tmp_path)
    check_agreed(seen)
    assert seen[0]["actions"][8:11] == ["veto", "veto", "rollback"]
    (event,) = events(tmp_path, "rollback")
    assert event["to_step"] == 1


def test_sharded_and_whole_gradients_have_the_same_norms(tmp_path):
    one, many = (train(ranks, kind, "none", tmp_path / kind) for ranks, kind in ((1, "plain"), (2, "fsdp")))
    assert many[0]["norms"] == pytest.approx(one[0]["norms"], rel=1e-4)


@pytest.mark.parametrize(("kind", "saved_by", "resumed_by"), [("fsdp", 2, 1), ("fsdp", 1, 2), ("ddp", 2, 1)])
@pytest.mark.slow
def test_a_checkpoint_fits_another_number_of_ranks(tmp_path, kind, saved_by, resumed_by):
    kinds = {1: "plain", 2: kind}
    saved = train(saved_by, kinds[saved_by], "save", tmp_path)
    resumed = train(resumed_by, kinds[resumed_by], "resume", tmp_path)
    check_agreed(resumed)
    assert {each["first"] for each in resumed} == {6}
    assert resumed[0]["steps"] == saved[0]["steps"] == 12
    for one, other in zip(saved[0]["weights"], resumed[0]["weights"], strict=True):
        assert other == pytest.approx(one, rel=1e-4, abs=1e-6)


def test_replicas_that_drift_apart_are_reported(tmp_path):
    train(2, "ddp", "desync", tmp_path)
    (finding,) = events(tmp_path, "finding")
    assert (finding["code"], finding["cause"], finding["severity"]) == ("SF503", "rank-desync", "error")
    assert "0.weight" in finding["evidence"][0]


def test_a_loader_that_fails_on_one_rank_ends_all_of_them_soon(tmp_path):
    begun = time.monotonic()
    done = launch(2, "ddp", "loader", tmp_path)
    assert done.returncode != 0
    assert time.monotonic() - begun < 60
    assert "exitcode  : 88" in done.stderr
    assert "LoaderFailed" in done.stderr
    errors = events(tmp_path, "loader-error", "events-rank00001.jsonl")
    assert [each["items"] for each in errors] == [[16, 17, 18, 19], [20, 21, 22, 23], [24, 25, 26, 27]]


def test_loaders_of_different_length_end_the_epoch_on_all_ranks(tmp_path):
    seen = train(2, "ddp", "uneven", tmp_path)
    assert [each["steps"] for each in seen] == [8, 8]
    assert events(tmp_path, "uneven-loaders", "events-rank00001.jsonl")
