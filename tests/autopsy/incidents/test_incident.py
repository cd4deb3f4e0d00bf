"""An incident on disk: whole or not there, checked when it is read, and never trusted more than it deserves."""

from __future__ import annotations

import json
import random
import signal
import threading
from pathlib import Path

import pytest
import torch

from fault_injector import flip_bit, truncate
from guarded_training import NAN, GuardedTraining, incidents
from stage import play
from stayfinite import Policy, StateError
from stayfinite.autopsy.incidents.incident_files import Archive, Draft, read_incident, write_autopsy, write_incident

FILES = 9
"""Syncs before an incident gets its name: eight files and the directory that they are in."""


def captured(folder: Path) -> Path:
    training = GuardedTraining(folder, policy=Policy(autopsy_seconds=0, prove_steps=2))
    training.steps(5)
    training.steps(1, NAN)
    training.guard.close()
    return folder / "incidents/0001"


KILLS = (1, 4, FILES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("incidents")


@pytest.fixture(scope="module")
def played(folder):
    """Launches that were killed at one sync or another, and the launch after each."""
    acts = {}
    for count in KILLS:
        acts |= {f"killed-{count}": (folder / f"{count}", count), f"again-{count}": (folder / f"{count}", 0)}
    return play("autopsy.incidents.incident_job", acts, folder / "stage")


@pytest.mark.parametrize("count", KILLS)
def test_a_kill_in_the_middle_leaves_no_half_incident(played, folder, count):
    assert played[f"killed-{count}"].ends == [-signal.SIGKILL]
    found = json.loads((folder / f"{count}" / "found.json").read_text())
    assert [name for name in found if not name.startswith(".")] == []
    # The next launch sweeps away what was left, and has its own.
    played[f"again-{count}"].check()
    assert incidents(folder / f"{count}") == ["0001"]
    assert read_incident(folder / f"{count}" / "incidents/0001").step == 6


@pytest.mark.parametrize("harm", [truncate, flip_bit])
@pytest.mark.parametrize("name", ["batch.safetensors", "weights.safetensors", "rng.json", "optimizer.safetensors"])
def test_a_damaged_file_is_found_and_named(tmp_path, harm, name):
    incident = captured(tmp_path)
    harm(incident / name, random.Random(3))
    with pytest.raises(StateError, match=f"damaged: {name}"):
        read_incident(incident)


def test_a_missing_file_is_found_and_named(tmp_path):
    incident = captured(tmp_path)
    (incident / "batch.json").unlink()
    with pytest.raises(StateError, match="batch.json is missing"):
        read_incident(incident)


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "not JSON"), ("[]", "a JSON object"), ('{"version": 2}', "version 2; this stayfinite reads 1"),
     ("{}", "None"), ('{"version": 1, "step": 3}', "lacks decision"), ("[" * 100_000, "not JSON")],
)  # fmt: skip
def test_a_record_that_is_none_is_refused(tmp_path, text, words):
    (tmp_path / "incident.json").write_text(text)
    with pytest.raises(StateError, match=words):
        read_incident(tmp_path)


def test_what_is_no_incident_is_said_to_be_none(tmp_path):
    with pytest.raises(StateError, match="is not an incident.*\n.*RUN/incidents/0001"):
        read_incident(tmp_path / "nowhere")


def test_a_file_outside_of_the_incident_is_not_touched(tmp_path):
    incident = captured(tmp_path)
    record = json.loads((incident / "incident.json").read_text())
    record["files"]["../../run.json"] = {"bytes": 1, "sha256": ""}
    (incident / "incident.json").write_text(json.dumps(record))
    with pytest.raises(StateError, match="names a file outside its directory"):
        read_incident(incident)


def test_tensors_that_gradients_were_computed_for_require_them_again(tmp_path):
    training = GuardedTraining(tmp_path, policy=Policy(autopsy_seconds=0))
    for value in (None, None, NAN):
        batch = training.batch(value)
        batch["x"].requires_grad_(True)
        training.guard.step(training.guard.forward(batch))
    training.guard.close()
    batch = read_incident(tmp_path / "incidents/0001").batch()
    assert batch["x"].requires_grad
    assert not batch["y"].requires_grad


# -- the archive -----------------------------------------------------------------------------------------------------


def draft(step: int = 1, **more) -> Draft:
    return Draft(step=step, record={"step": step}, tensors={"a.safetensors": {"a": torch.ones(2)}}, **more)


def test_a_number_that_somebody_has_taken_meanwhile_is_passed_over(tmp_path):
    (tmp_path / "0001").mkdir()
    assert write_incident(tmp_path, 1, draft(), "token").name == "0002"


def test_an_archive_is_full_when_it_is_also_with_what_is_under_way(tmp_path):
    archive, go_on = Archive(tmp_path, 2), threading.Event()
    for number in (1, 2):
        assert archive.number() == number
        archive.file(number, draft(number, ready=go_on.wait))
    assert archive.number() is None
    go_on.set()
    assert [filed.path.name for filed in archive.collect(wait=True)] == ["0001", "0002"]
    assert archive.number() is None


def test_an_incident_that_was_just_put_in_its_place_counts_once(tmp_path, monkeypatch):
    in_place, go_on = threading.Event(), threading.Event()

    def write_and_linger(*given):
        path = write_incident(*given)
        in_place.set()
        go_on.wait(100)
        return path

    monkeypatch.setattr("stayfinite.autopsy.incidents.incident_files.write_incident", write_and_linger)
    archive = Archive(tmp_path, 2)
    archive.file(1, draft(1))
    assert in_place.wait(100)
    assert archive.number() == 2
    go_on.set()
    archive.collect(wait=True)


def test_a_draft_is_let_go_whether_it_was_written_or_not(tmp_path):
    done = []
    archive = Archive(tmp_path, 3)
    archive.file(1, draft(done=lambda: done.append("written")))
    archive.collect(wait=True)
    broken = Draft(step=2, record={}, trees={"no/such/folder.json": 1}, done=lambda: done.append("lost"))
    archive.file(2, broken)
    (filed,) = archive.collect(wait=True)
    assert isinstance(filed.error, OSError)
    assert done == ["written", "lost"]
    assert [path.name for path in tmp_path.iterdir()] == ["0001"]


def test_an_autopsy_replaces_an_earlier_one_at_once(tmp_path):
    write_autopsy(tmp_path, {"cause": "one"})
    write_autopsy(tmp_path, {"cause": "other"})
    assert json.loads((tmp_path / "autopsy.json").read_text()) == {"cause": "other"}
    assert [path.name for path in tmp_path.iterdir()] == ["autopsy.json"]
