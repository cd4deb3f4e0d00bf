from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import warm
from child_processes import environment
from small_training import OPTIMIZERS, Training, changed
from stayfinite.errors import PoisonedState, PolicyError, StateError
from stayfinite.state import shelf
from stayfinite.state.checkpoints import Checkpointer, CheckpointWarning
from stayfinite.state.reading import load, newest_good, verify
from stayfinite.state.shelf import read_manifest
from stayfinite.state.snapshots import SnapshotRing
from stayfinite.state.training import capture, restore


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def saved(directory: Path, *steps: int, training: Training | None = None, keep: int = 10) -> Training:
    training = training or Training()
    with Checkpointer(directory, keep=keep) as saver:
        for step in steps:
            training.steps(1)
            saver.save(step, capture(training.parts))
            (outcome,) = saver.wait()
            assert outcome.error is None
    return training


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_resumed_training_ends_as_the_uninterrupted_one(tmp_path: Path, optimizer: str) -> None:
    whole = Training(optimizer)
    whole.steps(4)
    with Checkpointer(tmp_path) as saver:
        saver.save(4, capture(whole.parts, notes={"step": 4, "position": (1, 2)}))
    at = whole.everything()
    whole.steps(4)
    path, passed_over = newest_good(tmp_path)
    assert passed_over == []
    assert path == tmp_path / "step-00000004"
    resumed = Training(optimizer, seed=9)
    state = load(path)
    assert state.notes == {"step": 4, "position": (1, 2)}
    restore(resumed.parts, state)
    assert changed(at, resumed.everything()) == []
    resumed.steps(4)
    assert changed(whole.everything(), resumed.everything()) == []


def test_weights_are_plain_safetensors_under_their_own_names(tmp_path: Path) -> None:
    training = saved(tmp_path, 1)
    weights = load_file(tmp_path / "step-00000001" / "model.safetensors")
    assert set(weights) == set(training.model.state_dict())
    manifest = json.loads((tmp_path / "step-00000001" / "manifest.json").read_text())
    assert manifest["version"] == 1
    assert manifest["good"] is True
    assert {"model.safetensors", "optimizer.safetensors", "ema.safetensors", "state.json"} <= set(manifest["files"])


def test_the_last_good_ones_are_kept_and_nothing_else_is_left(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2, 3, 4, keep=2)
    assert names_in(tmp_path) == ["step-00000003", "step-00000004"]


def test_a_step_saved_again_after_a_rollback_is_the_newest(tmp_path: Path) -> None:
    saved(tmp_path, 5, 9, 5)
    path, _ = newest_good(tmp_path)
    assert path.name == "step-00000005.1"


def test_a_poisoned_state_is_never_written_and_costs_no_good_one(tmp_path: Path) -> None:
    training = saved(tmp_path, 1, 2)
    training.optimizer.state[training.model.up.weight]["exp_avg"][0] = torch.nan
    saver = Checkpointer(tmp_path, keep=1)
    saver.save(3, capture(training.parts))
    with pytest.warns(CheckpointWarning, match="the state of step 3 was not saved.*optimizer.state.up.weight.exp_avg"):
        (outcome,) = saver.wait()
    assert isinstance(outcome.error, PoisonedState)
    assert names_in(tmp_path) == ["step-00000001", "step-00000002"]


def _truncate(path: Path) -> None:
    with (path / "optimizer.safetensors").open("rb+") as file:
        file.truncate(100)


def _flip(path: Path) -> None:
    with (path / "model.safetensors").open("rb+") as file:
        file.seek(-5, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-5, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


def _poison(path: Path) -> None:
    """What another tool could do: bad numbers under a manifest that fits."""
    from stayfinite.state.writer import write_tensors

    tensors = {name: tensor.clone() for name, tensor in load_file(path / "model.safetensors").items()}
    tensors["up.weight"][0, 0] = torch.nan
    written = write_tensors(path / "model.safetensors", tensors, {})
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["model.safetensors"] = written.to_json()
    (path / "manifest.json").write_text(json.dumps(manifest))


DAMAGES = {
    "truncated": (_truncate, "optimizer.safetensors has 100 bytes, expected"),
    "flipped": (_flip, "model.safetensors was modified: its hash differs"),
    "missing": (lambda path: (path / "state.json").unlink(), "state.json is missing"),
    "no manifest": (lambda path: (path / "manifest.json").unlink(), "it has no manifest"),
    "torn manifest": (lambda path: (path / "manifest.json").write_text('{"version": 1,'), "its manifest is damaged"),
    "not good": (lambda path: (path / "manifest.json").write_text('{"version": 1, "good": false}'), "mark it as good"),
    "poisoned": (_poison, "1 tensors hold NaN or inf, first up.weight"),
    "empty": (lambda path: (shutil.rmtree(path), path.mkdir()), "it has no manifest"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_with_the_reason(tmp_path: Path, damage: str) -> None:
    saved(tmp_path, 1, 2)
    act, reason = DAMAGES[damage]
    act(tmp_path / "step-00000002")
    path, passed_over = newest_good(tmp_path)
    assert path == tmp_path / "step-00000001"
    assert [each.path.name for each in passed_over] == ["step-00000002"]
    assert reason in passed_over[0].reason


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
def test_no_flipped_bit_goes_unnoticed(tmp_path: Path, name: str) -> None:
    saved(tmp_path, 1)
    file = tmp_path / "step-00000001" / name
    content = file.read_bytes()
    before = read_manifest(file.parent)
    for place in range(0, len(content), max(1, len(content) // 40)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        try:
            assert verify(file.parent).files == before.files
        except StateError:
            continue
        assert name == "manifest.json", "only the manifest's own remarks may differ"


def test_there_may_be_none_at_all(tmp_path: Path) -> None:
    assert newest_good(tmp_path / "nowhere") == (None, [])
    (tmp_path / "step-00000001").write_text("a file")
    assert newest_good(tmp_path) == (None, [])


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    wider = Training(width=24)
    before = wider.everything()
    with pytest.raises(StateError, match=r"up.weight \(saved \[16, 8\] float32, here \[24, 8\]"):
        restore(wider.parts, load(newest_good(tmp_path).path))
    assert changed(before, wider.everything()) == []


def test_training_goes_on_while_a_snapshot_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training()
    ring = SnapshotRing(training.parts)
    training.steps(2)
    snapshot = ring.take(2)
    at = training.everything()
    from stayfinite.state import checkpoints

    real, told, go_on = checkpoints.write_checkpoint, [], threading.Event()

    def slowly(desk: object, step: int, *rest: Any) -> Path:
        told.append(f"begins {step}")
        go_on.wait()
        time.sleep(0.1)
        path = real(desk, step, *rest)
        told.append(f"ends {step}")
        return path

    monkeypatch.setattr(checkpoints, "write_checkpoint", slowly)
    with Checkpointer(tmp_path) as saver:
        saver.save(2, snapshot.state)  # to wait for it now would be to wait for ever
        training.steps(2)
        assert snapshot.state.memory.held
        join = saver._join
        monkeypatch.setattr(saver, "_join", lambda: (go_on.set(), join()))
        saver.save(3, snapshot.state)
        _, second = saver.wait()
        assert told == ["begins 2", "ends 2", "begins 3", "ends 3"], "a second one waits for the first"
        assert second.waited >= 0.1
    assert not snapshot.state.memory.held
    fresh = Training(seed=4)
    restore(fresh.parts, load(newest_good(tmp_path).path))
    assert changed(at, fresh.everything()) == []


def test_trouble_with_the_disk_is_told_once_and_training_goes_on(tmp_path: Path) -> None:
    training = Training()
    (tmp_path / "file").write_text("not a directory")
    saver = Checkpointer(tmp_path / "file" / "checkpoints")
    saver.save(1, capture(training.parts))
    with pytest.warns(CheckpointWarning, match="cannot write the checkpoint of step 1"):
        (outcome,) = saver.wait()
    assert isinstance(outcome.error, OSError)
    saver.save(2, capture(training.parts))
    (outcome,) = saver.wait()
    assert outcome.path is None


def test_settings_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="at least 1"):
        Checkpointer(tmp_path, keep=0)
    with pytest.raises(PolicyError, match="agree on a token"):
        Checkpointer(tmp_path, ranks=2)


FULL_DISK = """
import resource, sys, warnings
from small_training import Training
from stayfinite.state.checkpoints import Checkpointer
from stayfinite.state.training import capture
training = Training()
with Checkpointer(sys.argv[1], keep=1) as saver:
    training.steps(1)
    saver.save(1, capture(training.parts))
    assert saver.wait()[0].path
    sys.dont_write_bytecode = True  # Python would leave half a compiled module behind, for everybody
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    training.steps(1)
    saver.save(2, capture(training.parts))
    training.steps(3)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        (outcome,) = saver.wait()
    assert "File too large" in str(outcome.error), outcome
    assert len(seen) == 1
"""

KILLED = """
import sys, time
from small_training import Training
from stayfinite.state import writer
from stayfinite.state.checkpoints import Checkpointer
from stayfinite.state.training import capture
training, slow = Training(), float(sys.argv[2])
real = writer._write
def slowly(path, contents):
    time.sleep(slow)
    return real(path, contents)
writer._write = slowly
with Checkpointer(sys.argv[1], keep=2) as saver:
    for step in range(1, 1000):
        training.steps(1)
        saver.save(step, capture(training.parts))
        print(step, flush=True)
"""


def test_a_full_disk_keeps_the_last_good_one(tmp_path: Path) -> None:
    warm.run(["-c", FULL_DISK, tmp_path], env=environment()).check_returncode()
    assert names_in(tmp_path) == ["step-00000001"]
    assert newest_good(tmp_path).path is not None


@pytest.mark.parametrize("delay", [0.003, 0.011, 0.017])
def test_a_kill_inside_a_write_leaves_a_directory_to_resume_from(tmp_path: Path, delay: float) -> None:
    with warm.Process(["-c", KILLED, tmp_path, "0.004"], env=environment()) as process:
        while process.poll() is None and "4\n" not in process.said():
            time.sleep(0.001)
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    path, _ = newest_good(tmp_path)
    assert path is not None
    training = Training(seed=3)
    state = load(path)
    restore(training.parts, state)
    assert len(training.counter.seen) == read_manifest(path).step
    shelf.sweep(tmp_path)
    assert all(name.startswith("step-") for name in names_in(tmp_path)), "what the dead process left is swept away"
    saved(tmp_path, 5000, training=training, keep=2)
    assert newest_good(tmp_path).path.name == "step-00005000"


def test_the_unfinished_work_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / shelf.partial_name(7, 1, shelf.own_token())
    other = tmp_path / ".step-00000007.partial-1-1-another.host-1"
    reborn = tmp_path / shelf.partial_name(7, 2, shelf.own_token().replace("-", "-9", 1))
    for path in (mine, other, reborn):
        path.mkdir()
    assert shelf.sweep(tmp_path) == [reborn], "a process with our number that was started at another time is dead"
    assert len(newest_good(tmp_path).passed_over) == 2
