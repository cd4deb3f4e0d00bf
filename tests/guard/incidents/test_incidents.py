"""A refused step is captured and explained, and the training goes on as if nobody had looked."""

from __future__ import annotations

import json
import math
import os
import pickle
import threading
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import stayfinite.guard.incidents.incidents as incidents_module
from fault_injector import empty_disk, fill_disk, replace_by_file
from guarded_training import NAN, GuardedTraining, events, incidents
from stayfinite import BadStep, Guard, Policy, PolicyError, TrainingDiverged
from stayfinite.autopsy.incidents.incident_files import read_incident
from tiny_training import Lines, changed

QUIET = Policy(prove_steps=2, autopsy_seconds=0)
"""Captures and does not explain."""


# -- the promise -----------------------------------------------------------------------------------------------------


def test_a_refused_step_becomes_an_incident_with_a_verdict(tmp_path):
    training = GuardedTraining(tmp_path)
    training.until_nan(6)
    training.steps(2)
    training.guard.close()
    assert incidents(tmp_path) == ["0001"]
    found = json.loads((tmp_path / "incidents/0001/autopsy.json").read_text())
    assert found["cause"] == "bad-data-row"
    assert found["rows"] == [3]
    (event,) = events(tmp_path, "autopsy")
    assert {name: event[name] for name in ("cause", "verdict", "incident")} == {
        "cause": "bad-data-row", "verdict": found["verdict"], "incident": "incidents/0001",
    }  # fmt: skip
    assert event["origin"]["leaf"] == "batch.x"
    assert event["fix"]["verified"]
    (written,) = events(tmp_path, "incident")
    assert written["path"].endswith("incidents/0001")
    refused, explained, *_ = training.console.lines
    assert "step 7 refused" in refused
    assert "step 7 explained: bad-data-row" in explained


def test_an_incident_tells_the_whole_story(tmp_path):
    training = GuardedTraining(tmp_path, policy=QUIET)
    training.until_nan(60)
    training.guard.close()
    record = read_incident(tmp_path / "incidents/0001").record
    assert record["version"] == 1
    assert record["step"] == 61
    assert record["trigger"] == "loss-not-finite"
    assert record["decision"]["action"] == "veto"
    assert "loss is nan" in record["decision"]["reason"]
    assert math.isnan(record["signals"]["loss"])
    assert [each["step"] for each in record["history"]] == list(range(11, 61))
    assert set(record["versions"]) >= {"python", "torch"}
    assert record["device"] == "cpu"
    assert record["batch"]["words"] == "x float32[16, 8], y float32[16, 4]"
    assert record["weights"]["file"] == "weights.safetensors"
    assert record["compiled"] is False
    by_path = {each["path"]: each for each in record["modules"]["modules"]}
    assert by_path["up"]["type"] == "Linear"
    assert by_path["up"]["parameters"]["weight"] == "float32[16, 8]"
    assert by_path["drop"]["training"] is True
    (group,) = record["optimizer"]["groups"]
    assert group["eps"] == 1e-8
    assert group["betas"] == [0.9, 0.999]
    assert group["weight_decay"] == 0.1
    assert record["precision"] == {
        "guard": None, "autocast": None, "loss_scale": None, "scale": 1.0, "scaler": None,
    }  # fmt: skip


def test_weights_batch_and_generators_are_those_of_the_refused_step(tmp_path):
    training = GuardedTraining(tmp_path, policy=QUIET)
    training.steps(6)
    before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    bad = training.batch(NAN)
    generators = torch.get_rng_state()
    training.guard.step(training.guard.forward(bad))
    training.steps(3)
    training.guard.close()
    incident = read_incident(tmp_path / "incidents/0001")
    weights = incident.weights()
    assert all(torch.equal(weights[name], tensor) for name, tensor in before.items())
    assert torch.equal(incident.batch()["x"].nan_to_num(7.0), bad["x"].nan_to_num(7.0))
    assert incident.rng()["torch"] == bytes(generators.tolist())
    assert incident.good_weights().keys() == weights.keys()
    assert set(incident.optimizer_state()["state"]) == {name for name, _ in training.model.named_parameters()}


# -- nobody notices --------------------------------------------------------------------------------------------------


def run_through(folder, policy):
    make = partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.1, fused=policy.gate == "device")
    training = GuardedTraining(folder, policy=policy, optimizer=make)
    states = []
    for value in (None, None, None, NAN, None, math.inf, None, 1e4, None, NAN, None, None):
        training.steps(1, value)
        states.append(training.everything())
    training.guard.close()
    return states, [decision.action for decision in training.guard.decisions], training.calls


@pytest.mark.parametrize("how", [{"gate": "host"}, {"gate": "device"}, {"mode": "watch"}], ids=str)
def test_training_goes_on_bit_for_bit_as_if_nobody_had_looked(tmp_path, how):
    plain, decided, calls = run_through(tmp_path / "off", Policy(**how, prove_steps=2, max_incidents=0))
    looked, alike, more = run_through(tmp_path / "on", Policy(**how, prove_steps=2))
    assert decided == alike
    assert more > calls  # it was run again, in between
    for step, (one, other) in enumerate(zip(plain, looked, strict=True), 1):
        assert changed(one, other) == [], f"after step {step}"
    assert incidents(tmp_path / "on")
    assert not incidents(tmp_path / "off")


def test_gradients_are_gone_and_buffers_are_back_after_an_autopsy(tmp_path):
    training = GuardedTraining(tmp_path)
    training.steps(4)
    before = training.everything()
    training.steps(1, NAN)
    after = training.everything()
    assert all(p.grad is None for p in training.model.parameters())
    assert [path for path in changed(before, after) if not path.startswith("rng")] == []


def test_a_healthy_run_has_no_incident_and_no_second_forward_pass(tmp_path):
    training = GuardedTraining(tmp_path)
    training.steps(30)
    training.guard.close()
    assert training.calls == 30
    assert not (tmp_path / "incidents").exists()


def test_batches_are_let_go_once_their_step_is_known():
    training = GuardedTraining()
    training.steps(3)
    assert not training.guard._passes._steps
    assert not training.guard._passes._now


# -- how many, how large ---------------------------------------------------------------------------------------------


def test_the_first_of_each_kind_is_captured_and_the_second_is_not(tmp_path):
    training = GuardedTraining(tmp_path)
    training.steps(5)
    for _ in range(3):
        training.steps(1, NAN)
        training.steps(1)
    training.guard.close()
    assert incidents(tmp_path) == ["0001"]
    assert len(events(tmp_path, "veto")) == 3
    assert len(events(tmp_path, "autopsy")) == 1


def three_kinds(training):
    training.until_nan(20)
    training.steps(2)
    batch = training.batch()
    training.guard.step(training.guard.forward(batch) * 1e6)
    training.steps(2)
    hook = training.model.down.weight.register_hook(lambda g: g * NAN)
    training.steps(1)
    hook.remove()
    training.steps(2)
    training.guard.close()


def test_there_are_at_most_as_many_incidents_as_the_policy_says(tmp_path):
    three_kinds(GuardedTraining(tmp_path / "three", policy=Policy.refuse_spikes(prove_steps=2, autopsy_seconds=0)))
    assert incidents(tmp_path / "three") == ["0001", "0002", "0003"]
    triggers = [read_incident(tmp_path / f"three/incidents/000{n}").trigger for n in (1, 2, 3)]
    assert triggers == ["loss-not-finite", "loss-spike", "gradient-not-finite"]
    three_kinds(GuardedTraining(tmp_path / "one", policy=Policy.refuse_spikes(autopsy_seconds=0, max_incidents=1)))
    assert incidents(tmp_path / "one") == ["0001"]


def test_incidents_of_earlier_launches_count(tmp_path):
    for launch in (1, 2, 3):
        training = GuardedTraining(tmp_path, policy=Policy(autopsy_seconds=0, max_incidents=2))
        training.until_nan(3)
        training.guard.close()
        assert len(incidents(tmp_path)) == min(launch, 2)
    (kept,) = events(tmp_path, "incident-not-kept")
    assert "already holds 2 incidents" in kept["reason"]


def test_none_at_all_is_a_policy_too(tmp_path):
    training = GuardedTraining(tmp_path, policy=Policy(max_incidents=0))
    training.until_nan(3)
    training.guard.close()
    assert training.calls == 4
    assert not (tmp_path / "incidents").exists()
    assert events(tmp_path, "autopsy") == []


def test_large_weights_are_referred_to_and_not_written(tmp_path):
    policy = Policy(autopsy_seconds=0, incident_megabytes=0, checkpoint_steps=2)
    training = GuardedTraining(tmp_path, policy=policy)
    training.steps(5)
    training.guard._saving.tell(wait=True)
    training.steps(1, NAN)
    training.guard.close()
    incident = read_incident(tmp_path / "incidents/0001")
    assert incident.weights() is incident.good_weights() is incident.optimizer_state() is None
    about = incident.record["weights"]
    assert about["file"] is None
    assert about["checkpoint"] == "checkpoints/step-00000004"
    assert "incident_megabytes" in about["why"]


@pytest.mark.parametrize(
    "setting",
    [{"max_incidents": -1}, {"autopsy_seconds": -1}, {"autopsy_seconds": NAN}, {"incident_megabytes": 1.5},
     {"explain_scale_search": 1}],
)  # fmt: skip
def test_a_setting_outside_of_what_it_may_be_is_refused(setting):
    with pytest.raises(PolicyError, match=next(iter(setting))):
        Policy(**setting)


# -- which batch -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [0, 1, 3])
def test_under_accumulation_the_guilty_batch_is_found_by_its_loss(tmp_path, where):
    training = GuardedTraining(tmp_path)
    training.steps(3)
    batches = [training.batch(NAN if i == where else None, row=10 + i) for i in range(4)]
    for batch in batches:
        training.guard.backward(training.guard.forward(batch) / 4)
    training.guard.step()
    training.guard.close()
    incident = read_incident(tmp_path / "incidents/0001")
    assert incident.record["batch"]["passes"] == 4
    assert torch.equal(incident.batch()["x"].isnan(), batches[where]["x"].isnan())
    assert json.loads((incident.path / "autopsy.json").read_text())["rows"] == [10 + where]


def test_the_share_of_an_accumulated_batch_is_part_of_its_scale(tmp_path):
    training = GuardedTraining(tmp_path, policy=QUIET)
    training.steps(3)
    for value in (None, None, NAN, None):
        training.guard.backward(training.guard.forward(training.batch(value)) / 4)
    training.guard.step()
    training.guard.close()
    assert read_incident(tmp_path / "incidents/0001").record["precision"]["scale"] == pytest.approx(0.25)


@pytest.mark.parametrize("where", [0, 2])
def test_under_accumulation_a_bad_gradient_is_traced_to_its_batch_by_running_each(tmp_path, where):
    def forward(batch):
        return (training.model.up(batch["x"]) * batch["on"]).pow(2).sum(1).sqrt().mean()

    training = GuardedTraining(tmp_path, forward=forward)
    for number in range(3):
        for part in range(4):
            batch = training.batch() | {"on": torch.ones(16, 1)}
            if (number, part) == (2, where):
                batch["on"][5] = 0.0  # sqrt has no derivative at 0
            training.guard.backward(training.guard.forward(batch) / 4)
        training.guard.step()
    training.guard.close()
    incident = read_incident(tmp_path / "incidents/0001")
    assert incident.trigger == "gradient-not-finite"
    assert incident.record["batch"]["sure"] is True
    assert incident.batch()["on"].flatten().tolist().index(0.0) == 5
    (found,) = events(tmp_path, "autopsy")
    assert found["cause"] == "loss-formula-singularity"


def test_where_no_batch_is_bad_by_itself_nothing_is_claimed(tmp_path):
    training = GuardedTraining(tmp_path)
    training.steps(3)
    hook = training.model.down.weight.register_hook(lambda grad: grad * NAN if training.calls < 14 else grad)
    for _ in range(10):
        training.guard.backward(training.guard.forward(training.batch()) / 10)
    training.guard.step()
    hook.remove()
    training.guard.close()
    assert read_incident(tmp_path / "incidents/0001").record["batch"]["sure"] is False
    (skipped,) = events(tmp_path, "autopsy-skipped")
    assert "none of its 10 batches is bad alone" in skipped["reason"]


def test_a_forward_pass_that_empties_its_batch_can_be_run_again(tmp_path):
    training = GuardedTraining(tmp_path, forward=lambda batch: training.loss({"y": batch.pop("y"), **batch}))
    training.until_nan(4)
    training.guard.close()
    assert events(tmp_path, "autopsy")[0]["cause"] == "bad-data-row"
    assert sorted(read_incident(tmp_path / "incidents/0001").batch()) == ["x", "y"]


def test_a_batch_that_is_written_over_is_known_to_be_another_one(tmp_path):
    training = GuardedTraining(tmp_path, policy=Policy.watch(gate="auto", prove_steps=2))
    static = training.batch()
    for value in (None, None, None):
        static["x"].copy_(training.batch(value)["x"])
        training.guard.step(training.guard.forward(static))
    # The step is told only after the next batch has taken its place.
    look, late = training.guard._incidents.look, []
    training.guard._setup.alarm = None
    training.guard._incidents.look = lambda heard, step, **how: late.append((heard, step))
    static["x"].copy_(training.batch(NAN)["x"])
    training.guard.step(training.guard.forward(static))
    static["x"].copy_(training.batch()["x"])
    look(*late[0], taken=False)
    training.guard._incidents.finish()
    training.guard.close()
    assert read_incident(tmp_path / "incidents/0001").record["batch"]["overwritten_since"] is True
    (skipped,) = events(tmp_path, "autopsy-skipped")
    assert "overwritten" in skipped["reason"]


def test_a_forward_pass_that_fails_is_no_part_of_a_step(tmp_path):
    training = GuardedTraining(tmp_path)
    training.steps(3)
    with pytest.raises(KeyError):
        training.guard.forward({"y": torch.ones(1)})
    training.steps(1, NAN)
    training.guard.close()
    assert read_incident(tmp_path / "incidents/0001").record["batch"]["passes"] == 1


def test_evaluation_is_no_part_of_a_step():
    training = GuardedTraining()
    training.steps(2)
    with torch.no_grad():
        training.guard.forward(training.batch(NAN))
    assert not training.guard._passes._now


def test_without_guard_forward_there_is_nothing_to_capture(tmp_path):
    training = GuardedTraining(tmp_path)
    training.guard.step(training.loss(training.batch()))
    training.guard.step(training.loss(training.batch(NAN)))
    training.guard.close()
    assert not (tmp_path / "incidents").exists()
    assert events(tmp_path, "veto")


# -- policies and rungs ----------------------------------------------------------------------------------------------


def test_watching_captures_before_the_bad_step_is_taken(tmp_path):
    training = GuardedTraining(tmp_path, policy=Policy.watch())
    training.steps(5)
    before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    training.steps(1, NAN)
    training.guard.close()
    assert not training.model.up.weight.isfinite().all()  # monitor only: the step was taken
    weights = read_incident(tmp_path / "incidents/0001").weights()
    assert all(torch.equal(weights[name], tensor) for name, tensor in before.items())  # the running mean as well
    assert events(tmp_path, "autopsy")[0]["cause"] == "bad-data-row"


def test_a_strict_stop_says_what_the_autopsy_found(tmp_path):
    training = GuardedTraining(tmp_path, policy=Policy.strict())
    training.steps(3)
    with pytest.raises(BadStep, match="Autopsy: bad-data-row") as stop:
        training.steps(1, NAN)
    assert stop.value.step == 4
    assert "Weights unchanged by the refused steps." in stop.value.message
    assert "proved by re-run" in stop.value.fix
    assert "learning rate" not in stop.value.fix, "no general advice where a change was seen to help"
    assert "Fix: " not in stop.value.message, "it is said once"
    assert incidents(tmp_path) == ["0001"]
    record = read_incident(tmp_path / "incidents/0001").record
    assert record["decision"]["action"] == "stop"
    assert record["trigger"] == "loss-not-finite"
    assert (tmp_path / "incidents/0001/autopsy.json").exists()


def test_a_strict_stop_without_an_autopsy_gives_general_advice(tmp_path):
    training = GuardedTraining(tmp_path, policy=replace(Policy.strict(), autopsy_seconds=0))
    training.steps(3)
    with pytest.raises(BadStep) as stop:
        training.steps(1, NAN)
    assert "Autopsy" not in str(stop.value)
    assert "lower the learning rate" in stop.value.fix


def test_a_diverged_training_says_what_the_autopsy_of_its_first_bad_step_found(tmp_path):
    policy = Policy(max_vetoes_in_a_row=2, max_cuts=0, snapshots=False)
    training = GuardedTraining(tmp_path, policy=policy)
    training.steps(3)
    with pytest.raises(TrainingDiverged, match="Autopsy: bad-data-row"):
        training.steps(10, NAN)
    assert incidents(tmp_path) == ["0001"]


def test_without_a_run_directory_the_step_is_explained_all_the_same():
    training = GuardedTraining()
    training.until_nan(4)
    assert any("explained: bad-data-row" in line for line in training.console.lines)


def fp16_training(folder, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    policy = Policy(precision="fp16", **settings)

    def forward(batch):
        return F.mse_loss(model(batch[0]).float(), batch[1])

    return Guard(model, optimizer, scaler=scaler, policy=policy, run_dir=folder, forward=forward, console=Lines())


@pytest.mark.parametrize("asked", [False, True])
def test_the_search_for_a_loss_scale_is_an_incident_only_where_it_is_asked_for(tmp_path, asked):
    with fp16_training(tmp_path, explain_scale_search=asked) as guard:
        for number in range(12):
            x = torch.randn(16, 8, generator=torch.Generator().manual_seed(number))
            guard.step(guard.forward((x, x[:, :4])))
        assert guard.decisions[0].code == "scale-search"
    assert incidents(tmp_path) == (["0001"] if asked else [])
    if asked:
        precision = read_incident(tmp_path / "incidents/0001").record["precision"]
        assert precision["autocast"] == "float16"
        assert precision["guard"] == "fp16"
        assert precision["loss_scale"] == precision["scale"] == 2.0**24
        assert precision["scaler"]["backoff_factor"] == 0.5


def test_the_autocast_of_the_loop_is_remembered(tmp_path):
    training = GuardedTraining(tmp_path, policy=QUIET)
    for value in (None, None, NAN):
        with torch.autocast("cpu", torch.bfloat16):
            loss = training.guard.forward(training.batch(value))
        training.guard.step(loss)
    training.guard.close()
    assert read_incident(tmp_path / "incidents/0001").record["precision"]["autocast"] == "bfloat16"


# -- harm ------------------------------------------------------------------------------------------------------------


def test_nothing_is_pickled(tmp_path, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("pickle")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    monkeypatch.setattr(torch, "load", forbidden)
    monkeypatch.setattr(torch, "save", forbidden)
    training = GuardedTraining(tmp_path)
    training.until_nan(4)
    training.guard.close()
    incident = read_incident(tmp_path / "incidents/0001")
    assert incident.batch()
    assert incident.weights()
    assert incident.optimizer_state()
    assert events(tmp_path, "autopsy")


def test_a_full_disk_costs_the_incident_and_nothing_else(tmp_path):
    training = GuardedTraining(tmp_path)
    training.steps(4)
    training.guard.flush()
    fill_disk(1 << 13)
    try:
        training.steps(1, NAN)
        training.guard._incidents.finish()
    finally:
        empty_disk()
    training.steps(2)
    training.guard.close()
    assert incidents(tmp_path) == []
    assert [each.action for each in training.guard.decisions][-3:].count("veto") == 1
    assert any("the incident of step 5 is lost" in line for line in training.console.lines)
    assert any("step 5 explained" in line for line in training.console.lines)


def test_a_directory_that_cannot_be_written_costs_the_incident_and_nothing_else(tmp_path):
    replace_by_file(tmp_path / "incidents")
    training = GuardedTraining(tmp_path)
    training.until_nan(4)
    training.steps(2)
    training.guard.close()
    assert len(events(tmp_path, "incident-failed")) == 1
    assert len(events(tmp_path, "autopsy")) == 1


def test_an_autopsy_that_fails_is_an_event_and_no_more(tmp_path):
    calls = []

    def forward(batch):
        calls.append(1)
        if len(calls) > 5:
            raise KeyError("the loop has moved on")
        return training.loss(batch)

    training = GuardedTraining(tmp_path, forward=forward)
    training.steps(4)
    before = training.everything()
    training.steps(1, NAN)
    assert [each for each in changed(before, training.everything()) if not each.startswith("rng")] == []
    training.guard.close()
    (failed,) = events(tmp_path, "autopsy-failed")
    assert "the loop has moved on" in failed["reason"]
    assert incidents(tmp_path) == ["0001"]


def test_a_capture_that_fails_is_an_event_and_no_more(tmp_path, monkeypatch):
    def broken(*_):
        raise MemoryError("no room for a copy")

    monkeypatch.setattr(incidents_module, "draft_of", broken)
    training = GuardedTraining(tmp_path, policy=QUIET)
    training.until_nan(4)
    training.steps(2)
    training.guard.close()
    (failed,) = events(tmp_path, "incident-failed")
    assert "no room for a copy" in failed["reason"]


def test_training_does_not_wait_for_the_disk(tmp_path, monkeypatch):
    sync, slow = os.fsync, threading.Event()

    def crawl(descriptor):
        slow.wait()
        sync(descriptor)

    training = GuardedTraining(tmp_path, policy=QUIET)
    training.steps(4)
    training.guard.flush()
    monkeypatch.setattr(os, "fsync", crawl)
    training.steps(1, NAN)  # to wait for the disk now would be to wait for ever
    training.steps(3)
    assert not [name for name in incidents(tmp_path) if not name.startswith(".")]
    slow.set()
    training.guard.close()
    assert incidents(tmp_path) == ["0001"]


def test_an_autopsy_that_takes_long_says_what_training_is_waiting_for(tmp_path, monkeypatch):
    monkeypatch.setattr(incidents_module, "SOON", 0.0)

    def slow(batch):
        # Nothing is said before the autopsy; in it, as long as it takes until something is.
        while training.calls >= 4 and not training.console.lines:
            time.sleep(0.01)
        return training.loss(batch)

    training = GuardedTraining(tmp_path, forward=slow)
    training.until_nan(3)
    training.guard.close()
    assert training.console.lines[0] == "stayfinite: explaining step 4, up to 600 s"


def test_a_loop_that_fails_is_not_kept_waiting_by_an_autopsy(tmp_path):
    training = GuardedTraining(tmp_path)
    training.steps(3)
    with pytest.raises(ZeroDivisionError), training.guard:
        raise ZeroDivisionError
    assert training.guard._incidents._seconds == 0
