"""trl's trainers: their signals are found, a healthy run has the bits of a plain one, a bad step is refused."""

import json
import math

import pytest
import torch

from quick_ones import quick_ones
from stage import play_ranks
from stayfinite.integrations.transformers import StayFinite
from tiny_trainers import events, finite, same, weights
from tiny_trl import signals_of, trl_trainer

trl = pytest.importorskip("trl")

SAMPLED = {
    "kl", "entropy", "reward", "reward/reward_even", "equal_groups", "length", "cut_off", "clipped", "advantage_mean",
    "advantage_std", "repeats", "lag",
}  # fmt: skip
FOUND = {
    "grpo": SAMPLED,
    "rloo": SAMPLED | {"ratio_mean", "ratio_max"},
    "dpo": {"chosen_logp", "rejected_logp", "margin", "entropy"},
    "kto": {"chosen_logp", "rejected_logp", "margin", "entropy"},
    "reward": {"margin", "score_min", "score_max"},
    "sft": {"entropy"},
}


@pytest.mark.parametrize("kind", quick_ones(FOUND, "grpo", "dpo"))
def test_signals_are_found_and_a_healthy_run_has_the_bits_of_a_plain_one(tmp_path, kind):
    plain, guarded = trl_trainer(kind, tmp_path / "plain"), trl_trainer(kind, tmp_path / "guarded", StayFinite())
    for trainer in (plain, guarded):
        torch.manual_seed(11)
        trainer.train()
    assert same(weights(plain), weights(guarded))
    found = signals_of(tmp_path / "guarded")
    assert set().union(*found) == FOUND[kind]
    assert set(found[-1]) >= FOUND[kind] - {"kl"}
    assert all(math.isfinite(value) for step in found for value in step.values())
    logged = [entry for entry in guarded.state.log_history if "loss" in entry]
    ours, theirs = ("margin", "margin") if kind == "reward" else ("entropy", "entropy")
    assert [step[ours] for step in found] == pytest.approx([entry[theirs] for entry in logged], rel=1e-5)
    assert not any(name in vars(guarded) for name in ("compute_loss", "_calculate_rewards", "training_step"))


class SpoiltGrpo(trl.GRPOTrainer):
    """The log-probabilities of one answer are not numbers in one step."""

    at = 4

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):
        logps, *rest = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if torch.is_grad_enabled() and self.state.global_step + 1 == self.at:
            logps = torch.cat([logps[:1] * math.nan, logps[1:]])
        return logps, *rest


def test_a_bad_step_of_grpo_is_refused_and_its_answers_are_in_the_incident(tmp_path):
    trainer = trl_trainer("grpo", tmp_path, StayFinite(), base=SpoiltGrpo, num_iterations=2, steps_per_generation=2)
    reference = {name: tensor.clone() for name, tensor in trainer.ref_model.state_dict().items()}
    trainer.train()
    assert finite(trainer)
    assert [event["step"] for event in events(tmp_path, "veto")] == [4]
    assert same(reference, dict(trainer.ref_model.state_dict()))
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "learning_rate" in entry]
    assert rates[3] == rates[4]
    incident = json.loads((tmp_path / "stayfinite" / "incidents" / "0001" / "incident.json").read_text())
    rows = [row["text"] for row in incident["rows"]]
    assert len(rows) == 4
    assert rows[0].startswith("advantage ")
    assert "largest ratio nan" in rows[0]
    assert "largest ratio nan" not in rows[1]
    assert "reward reward_even " in rows[0]
    assert "\nprompt: w" in rows[0]
    assert "\nanswer: w" in rows[0]
    lags = [step["lag"] for step in signals_of(tmp_path)]
    assert lags == [0, 1, 2, 3, 0, 1]


@pytest.mark.slow
def test_on_two_ranks_a_bad_answer_of_one_is_refused_by_both_and_without_it_the_bits_are_those_of_a_plain_run(tmp_path):
    seen = play_ranks("integrations.transformers.trl_rank_job", tmp_path, ("plain", "good", "bad"))
    assert [each["weights"] for each in seen["plain"]] == [each["weights"] for each in seen["good"]]
    first, second = seen["bad"]
    assert first == second
    assert (first["finite"], first["vetoes"]) == (True, 1)
    assert first["reference"] == seen["plain"][0]["reference"]
    assert first["lr"] > seen["good"][0]["lr"]
    (veto,) = events(tmp_path / "bad", "veto")
    assert (veto["step"], veto["bad_ranks"]) == (4, [1])
    incident = json.loads((tmp_path / "bad" / "stayfinite" / "incidents" / "0001" / "incident.json").read_text())
    assert "largest ratio nan" in incident["rows"][0]["text"]
    assert "reward reward_even " in incident["rows"][0]["text"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["dpo", "kto", "reward", "rloo", "sft"])
def test_on_two_ranks_a_nan_of_one_is_refused_by_both_with_every_trainer(tmp_path, kind):
    ways = [f"{kind}-{way}" for way in ("plain", "good", "bad")]
    seen = play_ranks("integrations.transformers.trl_rank_job", tmp_path, ways, timeout=1000)
    plain, good, (first, second) = (seen[way] for way in ways)
    assert [each["weights"] for each in plain] == [each["weights"] for each in good]
    assert first == second
    assert (first["finite"], first["vetoes"]) == (True, 1)
    assert first["reference"] == plain[0]["reference"]
    (veto,) = events(tmp_path / ways[2], "veto")
    assert (veto["step"], veto["bad_ranks"]) == (4, [1])


def constant(completions, **_):
    return [1.0] * len(completions)


def by_chance(completions, **_):
    return torch.rand(len(completions)).tolist()


WIDE = {"per_device_train_batch_size": 16, "max_steps": 50, "logging_steps": 50}
PLANTED = {
    "grpo-zero-advantage": ("grpo", {"reward_funcs": [constant]}),
    "kl-runaway": ("grpo", {"reward_funcs": [by_chance], "learning_rate": 0.05, "beta": 1e-4}),
    "ratio-explosion": (
        "grpo",
        {"learning_rate": 0.2, "num_iterations": 8, "steps_per_generation": 4, "per_device_train_batch_size": 4},
    ),
    "dpo-both-fall": ("dpo", {"learning_rate": 5e-2, "beta": 0.01, "per_device_train_batch_size": 4}),
}


@pytest.mark.slow
@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_fault_of_trl_is_found_by_name_in_its_first_50_steps(tmp_path, cause):
    kind, settings = PLANTED[cause]
    trl_trainer(kind, tmp_path, StayFinite(), **WIDE | settings).train()
    assert cause in {event["cause"] for event in events(tmp_path, "sign")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grpo", "dpo"])
def test_a_healthy_run_of_trl_hears_of_nothing(tmp_path, kind):
    settings = {"learning_rate": 1e-3 if kind == "grpo" else 3e-4}
    trainer = trl_trainer(kind, tmp_path, StayFinite(), **WIDE | settings)
    trainer.train()
    assert events(tmp_path, "sign") + events(tmp_path, "veto") + events(tmp_path, "finding") == []


def test_a_healthy_run_that_may_be_steered_has_the_bits_of_a_plain_one(tmp_path):
    plain = trl_trainer("grpo", tmp_path / "plain")
    steered = trl_trainer("grpo", tmp_path / "steered", StayFinite(steer=True))
    for trainer in (plain, steered):
        torch.manual_seed(11)
        trainer.train()
    assert same(weights(plain), weights(steered))
    assert steered.beta == 0.04


@pytest.mark.slow
def test_a_policy_of_trl_that_runs_away_is_tied_closer_to_its_reference(tmp_path):
    settings = WIDE | PLANTED["kl-runaway"][1] | {"beta": 0.02, "max_steps": 120}
    distances = {}
    for name, callback in (("free", StayFinite()), ("held", StayFinite(steer=True))):
        trainer = trl_trainer("grpo", tmp_path / name, callback, **settings)
        torch.manual_seed(11)
        trainer.train()
        assert trainer.beta == 0.02  # as it was, when training has ended
        distances[name] = sorted(step["kl"] for step in signals_of(tmp_path / name)[-20:])[10]
    assert events(tmp_path / "held", "kl-raised")[0]["reason"] == "kl-runaway"
    assert distances["held"] < 0.7 * distances["free"]
