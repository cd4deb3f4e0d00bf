"""What a loop with accelerate loses to a bad batch, and keeps with one line."""

from __future__ import annotations

import json

import pytest
import torch
from accelerate import Accelerator

from accelerate_training import FAULTS, Training, events
from quick_ones import quick_ones
from stayfinite import Policy, TrainingDiverged
from stayfinite.errors import UsageError
from stayfinite.integrations.accelerate import StayFinite, accelerate_guard
from stayfinite.integrations.framework_guard import NotGuarded
from tiny_training import Lines


def train(*args, epochs: int = 1, **settings) -> Training:
    training = Training(*args, **settings)
    for _ in range(epochs):
        training.epoch()
    training.close()
    return training


def finite(training: Training) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in training.model.state_dict().values())


WAYS = {
    "plain": {},
    "a loss of its own": {"own_loss": True},
    "no clipping": {"clip": None},
    "accumulated": {"accelerator": {"gradient_accumulation_steps": 4}},
    "bf16": {"accelerator": {"mixed_precision": "bf16"}},
}


@pytest.mark.parametrize("way", quick_ones(WAYS, "plain", "accumulated", "bf16"))
def test_without_a_fault_the_weights_are_those_of_the_plain_loop_to_the_last_bit(tmp_path, way):
    alone, ours = train(**WAYS[way]), train({"run_dir": tmp_path}, **WAYS[way])
    assert alone.after == ours.after
    assert alone.losses == ours.losses
    assert [each["event"] for each in events(tmp_path)] == ["start", "closed"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_step_touches_nothing_and_training_goes_on_to_learn(tmp_path, fault):
    at = 30 if fault == "spike" else 7
    training = train({"run_dir": tmp_path, "policy": Policy.refuse_spikes()}, fault=fault, at=(at,))
    assert [number for number, skipped in enumerate(training.skipped) if skipped] == [at]
    # What BatchNorm has taken in is put back when the step is judged.
    assert training.untouched == [at]
    assert training.scheduler.scheduler.last_epoch == 39
    (veto,) = events(tmp_path, "veto")
    assert veto["step"] == at + 1
    assert finite(training)
    assert training.error() < 0.5


@pytest.mark.parametrize("fault", ["nan-batch", "nan-gradient", "inf-loss"])
def test_the_same_loop_without_the_guard_ends_in_nan(fault):
    assert not finite(train(fault=fault))


def test_clipping_would_have_spread_the_nan_and_the_veto_names_the_one_parameter(tmp_path):
    train({"run_dir": tmp_path}, fault="nan-gradient")
    (veto,) = events(tmp_path, "veto")
    assert veto["bad_parameters"] == ["up.weight"]


@pytest.mark.parametrize("way", ["plain", "bf16", "accumulated"])
def test_a_model_that_returns_its_loss_can_be_explained_without_a_word(tmp_path, way):
    train({"run_dir": tmp_path}, fault="nan-batch", **WAYS[way])
    (autopsy,) = events(tmp_path, "autopsy")
    assert autopsy["cause"] == "bad-data-row"
    record = json.loads((tmp_path / "incidents" / "0001" / "incident.json").read_text())
    assert record["precision"]["autocast"] == ("bfloat16" if way == "bf16" else None)


def test_a_loss_of_ones_own_is_explained_where_the_forward_pass_is_known(tmp_path):
    training = Training(fault="nan-batch")
    guard = accelerate_guard(
        training.accelerator,
        training.model,
        training.optimizer,
        training.scheduler,
        run_dir=tmp_path,
        forward=lambda batch: (training.model(batch[0]) - batch[1]).square().mean(),
        console=Lines(),
    )
    for batch in training.batches:
        training.accelerator.backward(guard.forward(batch))
        training.optimizer.step()
        training.scheduler.step()
        training.optimizer.zero_grad()
    guard.close()
    (autopsy,) = events(tmp_path, "autopsy")
    assert autopsy["cause"] == "bad-data-row"
    assert finite(training)


def test_the_fp32_world_of_an_autopsy_is_not_cast_by_accelerate(tmp_path):
    training = Training({"run_dir": tmp_path}, accelerator={"mixed_precision": "bf16"})
    seen = []
    handle = training.model.down.register_forward_hook(lambda _m, _a, out: seen.append(out.dtype))
    training.epoch()
    x, y = next(iter(training.batches))
    training.step(7, torch.where(torch.arange(8)[:, None] == 1, 3e38, x), y)
    training.close()
    handle.remove()
    assert set(seen[:40]) == {torch.bfloat16}
    assert torch.float32 in seen[40:]


def test_an_accumulated_step_is_refused_whole(tmp_path):
    training = train({"run_dir": tmp_path}, fault="nan-batch", accelerator={"gradient_accumulation_steps": 4})
    (veto,) = events(tmp_path, "veto")
    assert veto["step"] == 2
    assert training.before[4] == training.after[7]
    assert training.skipped == [4 <= number - 3 <= 7 for number in range(40)]
    assert training.scheduler.scheduler.last_epoch == 9
    lines = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert lines[0]["loss"] == pytest.approx(sum(training.losses[:4]) / 4)


def test_a_scaler_backs_off_as_by_itself(tmp_path):
    def scaler():
        return torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=30)

    alone, ours = train(scaler=scaler(), clip=None), train({"run_dir": tmp_path}, scaler=scaler(), clip=None)
    assert alone.after == ours.after
    alone = train(scaler=scaler(), clip=None, fault="nan-batch")
    ours = train({"run_dir": tmp_path / "bad"}, scaler=scaler(), clip=None, fault="nan-batch")
    assert alone.skipped == ours.skipped
    assert alone.accelerator.scaler.state_dict() == ours.accelerator.scaler.state_dict()
    (veto,) = events(tmp_path / "bad", "veto")
    assert veto["loss_scale"] == 2.0**10
    lines = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert lines[0]["grad_norm"] < 10


def test_a_finite_spike_is_refused_under_a_scaler_too(tmp_path):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    settings = {"run_dir": tmp_path, "policy": Policy.refuse_spikes()}
    training = train(settings, scaler=scaler, clip=None, fault="spike", at=(30,))
    assert [number for number, skipped in enumerate(training.skipped) if skipped] == [30]
    assert scaler.get_scale() == 2.0**10
    assert training.untouched == [30]


def test_by_default_a_finite_spike_is_bounded_and_the_model_learns_on(tmp_path):
    alone, ours = (train(settings, clip=None, fault="spike", at=(30,)) for settings in (None, {"run_dir": tmp_path}))
    (bound,) = events(tmp_path, "bound")
    assert (bound["step"], bound["code"]) == (31, "unusual-gradient")
    assert not any(ours.skipped)
    assert ours.untouched == []
    assert ours.error() < 0.5
    assert ours.error() <= alone.error()


def test_a_schedule_that_moves_once_an_epoch_moves_though_the_last_step_was_refused(tmp_path):
    training = Training({"run_dir": tmp_path}, fault="nan-batch", at=(39,), rate=lambda epoch: 0.5**epoch)
    step, training.scheduler.step = training.scheduler.step, lambda: None
    for _ in range(3):
        training.epoch()
        step()
    training.close()
    assert len(events(tmp_path, "veto")) == 3
    assert training.scheduler.scheduler.last_epoch == 3


def test_a_schedule_in_front_of_which_the_guard_stands_saves_nothing_of_it(tmp_path):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    before = set(scheduler.state_dict())
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    with accelerate_guard(accelerator, model, optimizer, scheduler, console=Lines()):
        assert set(scheduler.state_dict()) == before
        torch.save(scheduler.state_dict(), tmp_path / "schedule.pt")
    assert type(scheduler) is torch.optim.lr_scheduler.StepLR


def test_save_state_and_load_state_carry_the_guard(tmp_path):
    def run(folder, steps, *, load=None, save=None):
        training = Training({"run_dir": folder / "run"}, fault="nan-batch", at=(7, 27))
        training.model.drop.p = 0.0
        if load:
            training.accelerator.load_state(load)
        for number, (x, y) in enumerate(training.batches):
            if number in steps:
                training.step(number, x, y)
                if number == 19 and save:
                    training.accelerator.save_state(save)
        training.close()
        return training

    whole = run(tmp_path / "whole", range(40))
    run(tmp_path / "parts", range(25), save=str(tmp_path / "saved"))
    rest = run(tmp_path / "parts", range(20, 40), load=str(tmp_path / "saved"))
    assert whole.after[-1] == rest.after[-1]
    assert [each["step"] for each in events(tmp_path / "parts" / "run", "veto")] == [8, 28]


def test_what_the_loop_logs_has_norm_and_vetoes_beside_it(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = {"log_with": "tensorboard", "project_dir": tmp_path}
    training = Training({}, fault="nan-batch", accelerator=settings)
    training.accelerator.init_trackers("board")
    for number, (x, y) in enumerate(training.batches):
        training.step(number, x, y)
        training.accelerator.log({"loss": training.losses[-1]}, step=number)
    training.accelerator.end_training()
    board = EventAccumulator(str(tmp_path / "board")).Reload()
    assert [each.value for each in board.Scalars("stayfinite/vetoes")] == [0.0] * 7 + [1.0] * 33
    assert len(board.Scalars("loss")) == 40
    # end_training closes the guard, whose run lies in the project's directory.
    assert [each["event"] for each in events(tmp_path / "stayfinite")][-1] == "closed"


def test_nothing_stays_in_front_of_anything_after_close():
    training = Training()
    things = (training.accelerator, training.optimizer, training.optimizer.optimizer, training.scheduler)

    def own():
        mine = [{name for name, value in vars(each).items() if callable(value)} for each in things]
        return mine, len(training.model._forward_pre_hooks), len(training.model._forward_hooks)

    before = own()
    guard = accelerate_guard(*things[:1], training.model, training.optimizer, training.scheduler, console=Lines())
    assert own() != before
    training.epoch()
    guard.close()
    assert own() == before
    assert type(training.scheduler).__name__ == "AcceleratedScheduler"
    training.epoch()


def test_a_run_that_nothing_helps_is_stopped(tmp_path):
    policy = Policy(max_vetoes_in_a_row=2, patience=1, max_cuts=1, prove_steps=2, max_rollbacks=1)
    training = Training({"run_dir": tmp_path, "policy": policy}, fault="nan-batch", at=tuple(range(20, 40)))
    with pytest.raises(TrainingDiverged), training.guard:
        training.epoch()
    assert {"veto", "cut", "rollback", "stop", "stopped"} <= {each["event"] for each in events(tmp_path)}
    assert finite(training)


def test_a_backward_pass_past_accelerate_is_not_guarded_and_says_so():
    training = Training({})
    x, y = next(iter(training.batches))
    training.model(x=x, y=y)["loss"].backward()
    with pytest.warns(NotGuarded, match="accelerator.backward"):
        training.optimizer.step()
    training.close()
    assert training.optimizer.state_dict()["state"]


def test_the_record_tells_what_the_loop_clips_to(tmp_path):
    training = train({"run_dir": tmp_path}, clip=0.5)
    assert training.guard.run_dir == tmp_path
    assert json.loads((tmp_path / "run.json").read_text())["launches"][0]["max_norm"] == 0.5
    actions = {json.loads(line)["decision"] for line in (tmp_path / "steps.jsonl").read_text().splitlines()}
    assert actions == {"accept", "clip"}


def test_a_guard_is_told_of_what_was_not_prepared():
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(2, 1)
    with pytest.raises(UsageError, match="prepare"):
        accelerate_guard(accelerator, model, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(UsageError, match="Accelerator"):
        StayFinite(model, model, model)
