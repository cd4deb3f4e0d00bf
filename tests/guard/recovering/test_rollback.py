"""Cut, rollback and stop: what each leaves, what is told of it, and that the way up ends."""

from __future__ import annotations

import json

import pytest
import torch

from stayfinite import Action, Guard, Policy, TrainingDiverged
from tiny_training import Lines, TinyNet, Training, batch, changed

both_gates = pytest.mark.parametrize("gate", ["host", "device"])
QUICK = {"max_vetoes_in_a_row": 2, "patience": 1, "prove_steps": 3, "max_cuts": 0}


def events(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def actions(training):
    return [decision.action for decision in training.guard.decisions if decision.refused]


@both_gates
def test_a_rollback_puts_back_everything_as_it_was_at_the_snapshot(gate, tmp_path):
    training = Training("AdamW-fused", policy=Policy(gate=gate, **QUICK), run_dir=tmp_path)
    training.settled(1)
    then = training.state()
    training.good(6)
    training.bad_ones(["nan-loss"] * 3)
    assert actions(training) == [Action.VETO, Action.VETO, Action.ROLLBACK]
    assert changed(then, training.state()) == []
    (event,) = [each for each in events(tmp_path) if each["event"] == "rollback"]
    assert (event["from_step"], event["to_step"], event["code"]) == (10, 1, "vetoes-in-a-row")
    training.good(5)
    assert not training.guard.decisions[-1].refused


@both_gates
def test_going_back_to_the_same_state_and_failing_the_same_way_again_goes_one_rung_up(gate):
    training = Training("AdamW-fused", policy=Policy(gate=gate, **QUICK))
    training.good(6)
    with pytest.raises(TrainingDiverged, match="rolling back after 3 did not help") as caught:
        training.bad_ones(["nan-loss"] * 30)
    assert actions(training).count(Action.ROLLBACK) == 1
    assert caught.value.exit_code == 87


def test_without_a_known_good_state_there_is_nothing_to_go_back_to():
    training = Training(policy=Policy(**QUICK))
    training.good(2)
    with pytest.raises(TrainingDiverged):
        training.bad_ones(["nan-loss"] * 3)
    assert Action.ROLLBACK not in actions(training)


def test_snapshots_can_be_switched_off():
    training = Training(policy=Policy(snapshots=False, **QUICK))
    assert "no snapshots" in training.guard.describe()
    training.good(8)
    with pytest.raises(TrainingDiverged):
        training.bad_ones(["nan-loss"] * 3)


@pytest.mark.parametrize("policy", [Policy.watch(), Policy.strict()], ids=["watch", "strict"])
def test_only_a_protecting_guard_keeps_snapshots(policy):
    assert "no snapshots" in Training(policy=policy).guard.describe()


def test_averaged_weights_go_back_with_the_rest():
    torch.manual_seed(0)
    model = TinyNet()
    ema = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    guard = Guard(model, optimizer, policy=Policy(**QUICK), ema=ema, console=Lines())
    for number in range(8):
        x, y = batch(number)
        guard.step((model(x) - y).square().mean())
        if number == 0:
            # The snapshot of step 1 was taken inside guard.step, before this update.
            before = [p.clone() for p in ema.parameters()]
        ema.update_parameters(model)
    for number in range(3):
        guard.step((model(batch(number)[0]) * torch.nan).mean())
    assert guard.decisions[-1].action is Action.ROLLBACK
    assert all(torch.equal(a, b) for a, b in zip(before, ema.parameters(), strict=True))


def test_the_batches_that_led_to_a_rollback_are_passed_over_by_the_next_process(tmp_path):
    data = [batch(number) for number in range(12)]

    def train(*, bad, resume):
        torch.manual_seed(0)
        model = TinyNet()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        guard = Guard(model, optimizer, policy=Policy(**QUICK), run_dir=tmp_path, console=Lines())
        if resume:
            assert guard.resume() == 4
        seen = []
        batches = guard.batches(data)
        for x, y in batches:
            seen.append(batches.place)
            guard.step((model(x) - y).square().mean() * (torch.nan if batches.place[1] in bad else 1))
            if guard.decisions[-1].step == 4:
                guard.checkpoint()
        guard.close()
        return seen

    assert train(bad={9, 10, 11}, resume=False) == [(0, number) for number in range(12)]
    ledger = json.loads((tmp_path / "ledger.json").read_text())
    (entries,) = (loader["batches"] for loader in ledger["loaders"])
    fates = {each["batch"]: each["fate"] for each in entries}
    assert fates[9] == fates[11] == "given-up"  # they were not finite
    assert fates[8] == "waiting"
    rest = [(0, number) for number in range(4, 12) if number not in fates]
    assert train(bad=(), resume=True) == rest
    passed = [each["batch"] for each in events(tmp_path) if each["event"] == "passed-over"]
    assert passed == [batch for batch in fates if batch >= 4]


def test_a_worse_level_is_gone_back_from_once_and_then_believed(tmp_path):
    policy = Policy.refuse_spikes(prove_steps=3, level_change_after=3, warmup=4)
    training = Training(policy=policy, run_dir=tmp_path)
    training.good(12)
    for _ in range(12):
        training.guard.step(training.loss() * 1000)
    codes = [(d.action, d.code) for d in training.guard.decisions[12:]]
    assert (Action.ROLLBACK, "level-in-doubt") in codes
    assert codes[-1][0] in (Action.ACCEPT, Action.CLIP)
    assert sum(action is Action.ROLLBACK for action, _ in codes) == 1


def test_snapshots_that_cannot_be_taken_are_given_up_with_a_line():
    class Odd(torch.optim.lr_scheduler.LambdaLR):
        def state_dict(self):
            return {"what": object()}

    training = Training(scheduler=lambda optimizer: Odd(optimizer, lambda step: 1.0))
    training.good(3)
    assert [line for line in training.console.lines if "snapshots are off" in line]
    assert len(training.console.lines) == 1


def test_without_memory_for_snapshots_training_goes_on_and_says_so(monkeypatch):
    def refuse(*_args, **_settings):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("stayfinite.state.landing.HostMemory._allocate", refuse)
    training = Training()
    training.good(3)
    assert [line for line in training.console.lines if "can't allocate memory" in line]
    assert "no snapshots" in training.guard.describe()


def test_other_parameters_make_earlier_snapshots_void():
    model = TinyNet()
    model.up.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    guard = Guard(model, optimizer, policy=Policy(**QUICK), console=Lines())
    for number in range(6):
        guard.step((model(batch(number)[0])).square().mean())
    assert guard._recovery.options().rollback_to == 1
    model.up.requires_grad_(True)
    optimizer.add_param_group({"params": list(model.up.parameters())})
    guard.step((model(batch(7)[0])).square().mean())
    assert guard._recovery.options().rollback_to is None
