"""From beginning to end: resume, train again, fail, search; and nothing stays on the Trainer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import EarlyStoppingCallback, TrainerCallback

from child_processes import environment
from quick_ones import quick_ones
from stayfinite.core.policy import Policy
from stayfinite.errors import TrainingDiverged, UsageError
from stayfinite.integrations.transformers import NotGuarded, StayFinite
from tiny_trainers import Sentences, events, finite, lines, same, tiny_t5, tiny_trainer, trained, weights

SEQUENTIAL = {"train_sampling_strategy": "sequential"}


def own_attributes(trainer) -> tuple:
    return tuple(set(vars(part)) for part in (trainer, trainer.accelerator, trainer.optimizer, trainer.model))


class Break(TrainerCallback):
    def __init__(self, event, step, error):
        self.step, self.error = step, error
        setattr(self, event, self._break)

    def _break(self, args, state, control, **_):
        if state.global_step == self.step:
            raise self.error


@pytest.mark.parametrize("accumulate", quick_ones([1, 2], 2))
def test_a_resumed_training_ends_with_the_weights_of_one_that_was_never_interrupted(tmp_path, accumulate):
    settings = {"bad": (51, 100), "save_strategy": "steps", "save_steps": 10, "gradient_accumulation_steps": accumulate}
    whole = trained(tmp_path / "whole", StayFinite(), **settings)
    broken = tiny_trainer(tmp_path / "broken", StayFinite(), Break("on_step_end", 13, RuntimeError("out")), **settings)
    with pytest.raises(RuntimeError, match="out"):
        broken.train()
    resumed = tiny_trainer(tmp_path / "broken", StayFinite(), **settings)
    resumed.train(resume_from_checkpoint=True)
    assert same(weights(whole), weights(resumed))
    steps = lines(tmp_path / "broken" / "stayfinite" / "steps.jsonl")
    assert [step["step"] for step in steps] == [*range(1, 14), *range(11, 21)]
    whole_steps = {step["step"]: step for step in lines(tmp_path / "whole" / "stayfinite" / "steps.jsonl")}
    assert all(repr(step) == repr(whole_steps[step["step"]]) for step in steps)


def test_a_checkpoint_carries_what_the_guard_remembers(tmp_path):
    settings = {"bad": (51,), "save_strategy": "steps", "save_steps": 10} | SEQUENTIAL
    trainer = trained(tmp_path, StayFinite(explain=False), **settings)
    state = json.loads((tmp_path / "checkpoint-10" / "trainer_state.json").read_text())
    memory = state["stateful_callbacks"]["StayFinite"]["attributes"]["guard_state"]
    assert memory["step"] == 10
    assert len(memory["memory"]["ladder"]["spikes"]["losses"]) == 9  # of ten steps one was refused
    assert [event["name"] for event in events(tmp_path, "checkpoint")] == ["checkpoint-10", "checkpoint-20"]
    again = tiny_trainer(tmp_path, seen := StayFinite(explain=False), **settings)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert seen.run_dir == tmp_path / "stayfinite"
    assert same(weights(trainer), weights(again))


def test_a_checkpoint_from_before_the_line_was_added_is_resumed(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 10}
    plain = trained(tmp_path, **settings)
    resumed = tiny_trainer(tmp_path, StayFinite(), **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert same(weights(plain), weights(resumed))
    assert [step["step"] for step in lines(tmp_path / "stayfinite" / "steps.jsonl")] == [*range(11, 21)]
    # and its own checkpoint has what the first one had not
    assert (
        "StayFinite"
        in json.loads((tmp_path / "checkpoint-20" / "trainer_state.json").read_text())["stateful_callbacks"]
    )


def test_the_trainers_own_way_of_restoring_callbacks_keeps_the_policy(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 10, "restore_callback_states_from_checkpoint": True}
    tiny_trainer(tmp_path, StayFinite(Policy(sigmas=9.0)), **settings).train()
    resumed = tiny_trainer(tmp_path, StayFinite(Policy(sigmas=9.0)), **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    launches = json.loads((tmp_path / "stayfinite" / "run.json").read_text())["launches"]
    assert [launch["policy"]["sigmas"] for launch in launches] == [9.0, 9.0]


@pytest.mark.slow
def test_training_twice_with_one_callback_gives_two_runs_and_the_weights_of_plain_training(tmp_path):
    plain = trained(tmp_path / "plain")
    plain.train()
    callback = StayFinite()
    guarded = trained(tmp_path / "guarded", callback)
    guarded.train()
    assert same(weights(plain), weights(guarded))
    assert callback.run_dir == tmp_path / "guarded" / "stayfinite-2"
    for name in ("stayfinite", "stayfinite-2"):
        assert len(lines(tmp_path / "guarded" / name / "steps.jsonl")) == 20


def test_one_callback_serves_one_trainer_after_the_other(tmp_path):
    callback = StayFinite(explain=False)
    for name in ("one", "other"):
        trainer = trained(tmp_path / name, callback, bad=(51,), **SEQUENTIAL)
        assert finite(trainer)
        assert len(events(tmp_path / name, "veto")) == 1


@pytest.mark.parametrize(
    "event",
    quick_ones(
        ["on_step_begin", "on_step_end", "on_optimizer_step", "on_log", "on_epoch_end"], "on_step_begin", "on_epoch_end"
    ),
)
@pytest.mark.parametrize("error", [RuntimeError("out"), KeyboardInterrupt()])
def test_nothing_stays_on_the_trainer_when_training_fails(tmp_path, event, error):
    step = {"on_log": 10, "on_epoch_end": 16}.get(event, 9)
    plain = tiny_trainer(tmp_path / "plain", Break(event, step, error))
    with pytest.raises(type(error)):
        plain.train()
    guarded = tiny_trainer(tmp_path / "guarded", StayFinite(), Break(event, step, error))
    with pytest.raises(type(error)):
        guarded.train()
    assert own_attributes(plain) == own_attributes(guarded)
    assert events(tmp_path / "guarded", "failed")[0]["reason"].endswith(type(error).__name__)


def test_a_loader_that_fails_leaves_nothing_on_the_trainer(tmp_path):
    class Torn(Sentences):
        def __getitem__(self, index):
            if index == 77:
                raise OSError("cannot read row 77")
            return super().__getitem__(index)

    guarded = tiny_trainer(tmp_path, StayFinite(), data=Torn())
    with pytest.raises(OSError, match="row 77"):
        guarded.train()
    assert not {name for name in vars(guarded) if name in ("training_step", "log", "_run_epoch", "_stayfinite")}


def test_nothing_stays_on_the_trainer_when_training_ends(tmp_path):
    plain = trained(tmp_path / "plain")
    guarded = trained(tmp_path / "guarded", StayFinite(), bad=(3,))
    assert own_attributes(plain) == own_attributes(guarded)
    assert not guarded.accelerator.optimizer_step_was_skipped


def test_evaluation_the_best_model_and_early_stopping_go_on_as_without(tmp_path):
    settings = {
        "eval_strategy": "steps", "eval_steps": 5, "save_strategy": "steps", "save_steps": 5, "max_steps": 40,
        "load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "save_total_limit": 1,
        "learning_rate": 0.05, "built_with": {"eval_dataset": Sentences(16)},
    }  # fmt: skip
    plain = trained(tmp_path / "plain", EarlyStoppingCallback(1, 0.1), **settings)
    guarded = trained(tmp_path / "guarded", EarlyStoppingCallback(1, 0.1), StayFinite(), **settings)
    assert plain.state.global_step < 40
    assert guarded.state.global_step == plain.state.global_step
    assert guarded.state.best_metric == plain.state.best_metric
    assert same(weights(plain), weights(guarded))


def test_the_ladder_cuts_the_learning_rate_and_then_goes_back(tmp_path):
    class Sour(Sentences):
        """Good at first, then nothing but NaN for a while."""

        def __getitem__(self, index):
            row = super().__getitem__(index)
            if 320 <= index < 376:
                row["inputs_embeds"][0, 0] = torch.nan
            return row

    policy = Policy(max_vetoes_in_a_row=2, patience=2, prove_steps=3, autopsy_seconds=0)
    trainer = trained(tmp_path, StayFinite(policy), data=Sour(800), max_steps=100, logging_steps=2, **SEQUENTIAL)
    assert finite(trainer)
    cut, back = events(tmp_path, "cut")[0], events(tmp_path, "rollback")[0]
    assert cut["step"] < back["step"]
    assert back["to_step"] < 41 <= back["from_step"]
    assert any(logged.get("stayfinite/lr_factor", 1) == pytest.approx(0.1) for logged in trainer.state.log_history)
    assert trainer.state.log_history[-1]["stayfinite/rollbacks"] == 1


def test_a_lost_training_is_stopped_with_its_error_and_nothing_stays(tmp_path):
    policy = Policy(max_vetoes_in_a_row=2, patience=0, snapshots=False, max_cuts=0, autopsy_seconds=0)
    trainer = tiny_trainer(tmp_path, StayFinite(policy), bad=tuple(range(40, 128)), **SEQUENTIAL)
    with pytest.raises(TrainingDiverged, match="step 8"):
        trainer.train()
    assert finite(trainer)
    assert "_stayfinite" not in vars(trainer)
    assert events(tmp_path, "stop")


def test_strict_stops_at_the_first_bad_step_and_watch_takes_it(tmp_path):
    strict = tiny_trainer(tmp_path / "strict", StayFinite(Policy.strict()), bad=(51,), **SEQUENTIAL)
    with pytest.raises(TrainingDiverged, match="step 7"):
        strict.train()
    watched = trained(tmp_path / "watch", StayFinite(Policy.watch()), bad=(51,), **SEQUENTIAL)
    plain = trained(tmp_path / "plain", bad=(51,), **SEQUENTIAL)
    for name, tensor in weights(plain).items():
        assert torch.equal(tensor.nan_to_num(7.0), weights(watched)[name].nan_to_num(7.0))
    found = json.loads((tmp_path / "watch" / "stayfinite" / "incidents" / "0001" / "autopsy.json").read_text())
    assert found["cause"] == "bad-data-row"


@pytest.mark.slow
def test_an_uncaught_stop_ends_the_process_with_its_own_exit_code(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "from pathlib import Path\n"
        "from tiny_trainers import tiny_trainer\n"
        "from stayfinite import Policy\n"
        "from stayfinite.integrations.transformers import StayFinite\n"
        f"tiny_trainer(Path({str(tmp_path / 'out')!r}), StayFinite(Policy.strict()), bad=tuple(range(128))).train()\n"
    )
    command = [sys.executable, str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert ended.returncode == 87, ended.stderr
    assert "BadStep" in ended.stderr


def test_without_a_run_directory_nothing_is_written(tmp_path):
    trainer = trained(tmp_path / "out", StayFinite(run_dir=None), bad=(51,), **SEQUENTIAL)
    assert finite(trainer)
    assert not list(tmp_path.rglob("*stayfinite*"))


def test_a_run_directory_of_ones_own_is_used(tmp_path):
    trained(tmp_path / "out", StayFinite(run_dir=tmp_path / "mine"))
    assert len(lines(tmp_path / "mine" / "steps.jsonl")) == 20
    assert not (tmp_path / "out" / "stayfinite").exists()


def test_two_callbacks_on_one_trainer_count_once(tmp_path):
    trainer = tiny_trainer(tmp_path, StayFinite(explain=False), StayFinite(explain=False), bad=(51,), **SEQUENTIAL)
    with pytest.warns(NotGuarded, match="two StayFinite"):
        trainer.train()
    assert trainer.state.log_history[-1]["stayfinite/vetoes"] == 1
    assert not (tmp_path / "stayfinite-2").exists()


def test_a_training_that_fails_before_its_first_epoch_can_be_begun_again(tmp_path):
    breaking = Break("on_train_begin", 0, RuntimeError("out"))
    trainer = tiny_trainer(tmp_path, StayFinite(explain=False), breaking, bad=(51,), **SEQUENTIAL)
    with pytest.raises(RuntimeError, match="out"):
        trainer.train()
    breaking.step = -1
    trainer.train()
    assert finite(trainer)
    assert trainer.state.log_history[-1]["stayfinite/vetoes"] == 1


def test_the_class_itself_and_a_callback_that_is_added_later_do_as_well(tmp_path):
    given = trained(tmp_path / "given", StayFinite, bad=(51,), **SEQUENTIAL)
    added = tiny_trainer(tmp_path / "added", bad=(51,), **SEQUENTIAL)
    added.add_callback(StayFinite())
    added.train()
    assert finite(given)
    assert same(weights(given), weights(added))


def test_a_gate_on_the_device_cannot_be_had_and_that_is_said(tmp_path):
    trainer = tiny_trainer(tmp_path, StayFinite(Policy(gate="device")))
    with pytest.raises(UsageError, match="asks at once"):
        trainer.train()
    assert "_stayfinite" not in vars(trainer)


def test_a_search_over_settings_trains_each_trial_guarded_and_leaves_nothing(tmp_path):
    pytest.importorskip("optuna")
    trainer = tiny_trainer(
        tmp_path,
        StayFinite(explain=False),
        bad=(51,),
        max_steps=8,
        eval_strategy="steps",
        eval_steps=4,
        built_with={"model_init": lambda _: tiny_t5(), "eval_dataset": Sentences(16)},
        model=False,
    )
    trainer.hyperparameter_search(
        hp_space=lambda trial: {"learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2)}, n_trials=2
    )
    assert {path.name for path in Path(tmp_path).glob("stayfinite*")} == {"stayfinite", "stayfinite-2"}
    assert "_stayfinite" not in vars(trainer)
