"""Incidents on a CUDA device: remembered without a wait, captured though heard of late, explained without a trace.

Where pytest is missing:  PYTHONPATH=src:tests python3 tests/guard/incidents/test_incidents_on_cuda.py
"""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import torch

from guarded_training import NAN, GuardedTraining, events, incidents
from on_a_gpu import MARKS, no_host_wait, run_all
from stayfinite import Policy
from stayfinite.autopsy.autopsy import perform
from stayfinite.autopsy.incidents.incident_files import read_incident
from stayfinite.autopsy.incidents.rebuild import rebuild
from tiny_training import changed

pytestmark = MARKS


def fused(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1, fused=True)


def training(folder: Path | None, **settings: Any) -> GuardedTraining:
    return GuardedTraining(folder, device="cuda", optimizer=fused, **settings)


def test_remembering_a_healthy_step_never_waits_for_the_device() -> None:
    job = training(None, policy=Policy(snapshots=False, sample_every=0, desync_steps=0))
    job.steps(8)
    job.guard.flush()
    batches = [job.batch() for _ in range(20)]
    with no_host_wait():
        for batch in batches:
            job.guard.step(job.guard.forward(batch))
    job.guard.close()


def test_a_step_that_is_heard_of_late_is_captured_with_its_own_batch_and_generators() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = training(folder)
        job.steps(6)
        bad = job.batch(NAN)
        before = torch.cuda.get_rng_state().tolist()
        job.guard.step(job.guard.forward(bad))
        job.steps(4)
        job.guard.close()
        incident = read_incident(folder / "incidents/0001")
        assert incident.step == 7
        assert incident.device.type == "cuda"
        assert torch.equal(incident.batch()["x"].isnan(), bad["x"].cpu().isnan())
        assert list(incident.rng()["cuda"][torch.cuda.current_device()]) == before
        (found,) = events(folder, "autopsy")
        assert found["cause"] == "bad-data-row"
        assert found["rows"] == [3]
        later = incident.record["weights"]["later"]
        assert 0 <= later <= 4, later


def run_through(folder: Path, policy: Policy) -> tuple[list[dict[str, Any]], list[str]]:
    job = training(folder, policy=policy)
    states = []
    for value in (None, None, None, NAN, None, math.inf, None, 1e5, None, NAN, None, None):
        job.steps(1, value)
        job.guard.flush()
        states.append(job.everything() | {"cuda": torch.cuda.get_rng_state().tolist()})
    job.guard.close()
    return states, [decision.action for decision in job.guard.decisions]


def test_training_on_the_device_goes_on_bit_for_bit() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        with tempfile.TemporaryDirectory() as name:
            plain, decided = run_through(Path(name, "off"), Policy(prove_steps=2, max_incidents=0))
            looked, alike = run_through(Path(name, "on"), Policy(prove_steps=2))
            assert incidents(Path(name, "on"))
            assert decided == alike
            for step, (one, other) in enumerate(zip(plain, looked, strict=True), 1):
                assert changed(one, other) == [], f"after step {step}: {changed(one, other)[:5]}"
    finally:
        torch.use_deterministic_algorithms(False)


def test_an_incident_of_the_device_is_explained_on_the_host() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = training(folder, policy=Policy(autopsy_seconds=0, prove_steps=2))
        job.steps(6)
        job.steps(1, NAN)
        job.guard.close()
        for device in ("cpu", "cuda"):
            model = type(job.model)()
            rebuilt = rebuild(
                read_incident(folder / "incidents/0001"),
                model,
                lambda batch, model=model: (model(batch["x"]) - batch["y"]).pow(2).mean(),
                torch.device(device),
            )
            found = perform(rebuilt.step, rebuilt.materials).to_json()
            assert found["cause"] == "bad-data-row", json.dumps(found)[:500]
            assert found["rows"] == [3]


def test_watching_on_the_device_captures_the_batch_and_says_that_the_weights_are_gone() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = training(folder, policy=Policy.watch())
        job.steps(4)
        job.steps(1, NAN)
        job.guard.close()
        incident = read_incident(folder / "incidents/0001")
        assert incident.weights() is None
        assert "the weights have changed" in incident.record["weights"]["why"]
        (skipped,) = events(folder, "autopsy-skipped")
        assert "changed the weights" in skipped["reason"]


if __name__ == "__main__":
    run_all(globals())
