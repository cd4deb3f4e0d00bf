"""A Trainer with one line more: nothing changes without faults, and a bad step touches nothing."""

import json
import math

import pytest
import torch
from transformers import TrainerCallback

from quick_ones import quick_ones
from stayfinite.core.policy import Policy
from stayfinite.integrations.transformers import StayFinite
from tiny_trainers import events, finite, lines, same, trained, weights

pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU without bf16

FAULTS = ("nan-batch", "nan-gradient", "inf-loss", "spike")
PLANS = {
    "adamw": {},
    "fused": {"optim": "adamw_torch_fused"},
    "adafactor": {"optim": "adafactor"},
    "sgd": {"optim": "sgd", "learning_rate": 0.3},
    "accumulation": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
    "no-clipping": {"max_grad_norm": 0.0},
    "bf16": {"bf16": True},
    "label-smoothing": {"label_smoothing_factor": 0.1},
    "cosine": {"lr_scheduler_type": "cosine", "warmup_steps": 4},
    "checkpointing": {"gradient_checkpointing": True},
}


def planted(fault: str, at: int) -> dict:
    # Without shuffling the batch of a step is known: step 7 of batches of 8 rows holds row 51.
    return {"bad": (8 * (at - 1) + 3,)} if fault == "nan-batch" else {"fault": fault, "at": at}


class Witness(TrainerCallback):
    """Keeps the training state round one step (the first is 1)."""

    def __init__(self, step):
        self.step, self.before, self.after = step, None, None

    def on_step_begin(self, args, state, control, **parts):
        if state.global_step + 1 == self.step:
            self.before = _whole(parts)

    def on_step_end(self, args, state, control, **parts):
        if state.global_step == self.step:
            self.after = _whole(parts)


def _whole(parts):
    moments = {
        f"{i}.{name}": value.clone() if isinstance(value, torch.Tensor) else value
        for i, state in enumerate(parts["optimizer"].state.values())
        for name, value in state.items()
    }
    model = {name: tensor.clone() for name, tensor in parts["model"].state_dict().items()}
    schedule = {name: value for name, value in parts["lr_scheduler"].state_dict().items() if name != "lr_lambdas"}
    return {"model": model, "moments": moments, "schedule": repr(schedule)}


def _equal(one, other):
    return (
        same(one["model"], other["model"])
        and one["schedule"] == other["schedule"]
        and one["moments"].keys() == other["moments"].keys()
        and all(
            torch.equal(torch.as_tensor(one["moments"][k]), torch.as_tensor(other["moments"][k]))
            for k in one["moments"]
        )
    )


@pytest.mark.parametrize("plan", quick_ones(PLANS, "adamw", "bf16", "no-clipping"))
def test_without_faults_the_weights_are_the_same_to_the_last_bit(tmp_path, plan):
    plain = trained(tmp_path / "plain", **PLANS[plan])
    guarded = trained(tmp_path / "guarded", StayFinite(), **PLANS[plan])
    assert same(weights(plain), weights(guarded))
    for one, other in zip(plain.state.log_history[:-1], guarded.state.log_history[:-1], strict=True):
        assert one == {name: value for name, value in other.items() if not name.startswith("stayfinite")}
    assert guarded.state.log_history[-1]["train_loss"] == plain.state.log_history[-1]["train_loss"]


@pytest.mark.parametrize(
    ("plan", "fault"),
    [*(("adamw", fault) for fault in FAULTS), ("fused", "spike"), ("adafactor", "nan-gradient"), ("sgd", "nan-batch"),
     ("bf16", "nan-gradient"), ("no-clipping", "inf-loss")],
)  # fmt: skip
def test_a_bad_step_touches_neither_weights_nor_moments_nor_schedule(tmp_path, plan, fault):
    at = 15 if fault == "spike" else 7
    witness = Witness(at)
    settings = PLANS[plan] | planted(fault, at) | {"train_sampling_strategy": "sequential"}
    trainer = trained(tmp_path, StayFinite(Policy.refuse_spikes(autopsy_seconds=0)), witness, **settings)
    assert _equal(witness.before, witness.after)
    assert finite(trainer)
    assert [event["step"] for event in events(tmp_path, "veto")] == [at]
    assert trainer.state.log_history[-1]["stayfinite/vetoes"] == 1
    assert trainer.state.log_history[-2]["loss"] < trainer.state.log_history[0]["loss"]


@pytest.mark.parametrize("fault", ["nan-batch", "nan-gradient", "inf-loss"])
def test_without_the_guard_the_same_training_is_lost(tmp_path, fault):
    trainer = trained(tmp_path, **planted(fault, 7), train_sampling_strategy="sequential")
    assert not finite(trainer)
    # and the Trainer's own log hides it
    assert trainer.state.log_history[-2]["loss"] == 0


@pytest.mark.parametrize("plan", ["adamw", "fused", "no-clipping"])
def test_by_default_a_finite_spike_is_bounded_and_counted_in_the_log(tmp_path, plan):
    trainer = trained(tmp_path, StayFinite(), **PLANS[plan], **planted("spike", 18))
    unusual = [event["step"] for event in events(tmp_path, "bound")]
    assert unusual == ([18] if plan == "no-clipping" else [])
    assert events(tmp_path, "veto") == []
    assert trainer.state.log_history[-1].get("stayfinite/bounded", 0) == len(unusual)
    assert finite(trainer)


def test_without_the_guard_a_spike_goes_into_the_weights(tmp_path):
    healthy = trained(tmp_path / "healthy")
    witness = Witness(15)
    trainer = trained(tmp_path / "spike", witness, fault="spike", at=15)
    assert not same(witness.before["model"], witness.after["model"])
    assert witness.before["schedule"] != witness.after["schedule"]
    assert not same(weights(healthy), weights(trainer))


@pytest.mark.parametrize("filtered", [True, False])
def test_the_logged_loss_is_that_of_the_steps_that_were_taken(tmp_path, filtered):
    settings = {"train_sampling_strategy": "sequential", "logging_nan_inf_filter": filtered}
    trainer = trained(tmp_path, StayFinite(explain=False), bad=(8 * 6 + 3,), **settings)
    steps = lines(tmp_path / "stayfinite" / "steps.jsonl")
    history = trainer.state.log_history
    for number, logged in enumerate(history[:-1]):
        taken = [step["loss"] for step in steps[5 * number : 5 * number + 5] if step["decision"] != "veto"]
        assert logged["loss"] == pytest.approx(sum(taken) / len(taken), rel=1e-6)
    assert math.isnan(history[1]["stayfinite/refused_loss"])
    assert [logged["stayfinite/vetoes"] for logged in history] == [0, 1, 1, 1, 1]
    assert math.isfinite(history[-1]["train_loss"])


def test_where_every_step_of_an_interval_was_refused_the_logged_loss_is_nan(tmp_path):
    settings = {"train_sampling_strategy": "sequential", "logging_steps": 1}
    trainer = trained(tmp_path, StayFinite(explain=False), bad=(8 * 6 + 3,), **settings)
    assert [math.isnan(logged["loss"]) for logged in trainer.state.log_history[:-1]].index(True) == 6
    assert math.isfinite(trainer.state.log_history[-1]["train_loss"])


def test_the_batch_is_kept_and_the_cause_is_found(tmp_path):
    trainer = trained(tmp_path, StayFinite(), bad=(8 * 6 + 3,), train_sampling_strategy="sequential")
    found = json.loads((tmp_path / "stayfinite" / "incidents" / "0001" / "autopsy.json").read_text())
    assert found["cause"] == "bad-data-row"
    assert found["rows"] == [3]
    assert trainer.state.log_history[-1]["stayfinite/found/bad-data-row"] == 7


def test_an_overflow_in_the_model_is_found_in_its_module(tmp_path):
    from tiny_trainers import tiny_t5, trained

    model = tiny_t5()
    with torch.no_grad():
        model.decoder.block[0].layer[2].DenseReluDense.wo.weight.fill_(3e38)
    trained(tmp_path, StayFinite(), model=model, max_steps=2)
    found = json.loads((tmp_path / "stayfinite" / "incidents" / "0001" / "autopsy.json").read_text())
    assert "decoder.block.0" in json.dumps(found["origin"])
    assert found["cause"] != "hardware"


def test_a_loss_that_depends_on_the_step_is_run_again_at_its_step(tmp_path):
    trained(tmp_path, StayFinite(), fault="inf-loss", at=7)
    found = json.loads((tmp_path / "stayfinite" / "incidents" / "0001" / "autopsy.json").read_text())
    assert found["cause"] != "hardware"


def test_under_accumulation_the_guilty_one_of_the_batches_is_found(tmp_path):
    settings = PLANS["accumulation"] | {"train_sampling_strategy": "sequential"}
    trainer = trained(tmp_path, StayFinite(), bad=(8 * 6 + 5,), **settings)
    assert finite(trainer)
    found = json.loads((tmp_path / "stayfinite" / "incidents" / "0001" / "autopsy.json").read_text())
    assert (found["cause"], found["rows"]) == ("bad-data-row", [1])


def test_an_autopsy_leaves_no_trace_in_the_training(tmp_path):
    settings = {"bad": (8 * 6 + 3,), "train_sampling_strategy": "sequential"}
    one = trained(tmp_path / "one", StayFinite(explain=False), **settings)
    other = trained(tmp_path / "other", StayFinite(), **settings)
    assert same(weights(one), weights(other))
