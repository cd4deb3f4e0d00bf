"""A Trainer whose steps are run again: the same bits without a fault, and a fault is named."""

import pytest

from quick_ones import quick_ones
from stayfinite.core.policy import Policy
from stayfinite.integrations.transformers import StayFinite
from tiny_trainers import Faulty, events, same, trained, weights

PLANS = {
    "plain": {},
    "accumulation": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
    "checkpointing": {"gradient_checkpointing": True},
}


class Erring(Faulty):
    """The first computation of one step is off by a bit's worth; re-runs are right."""

    erred = False

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        loss = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
        if self.state.global_step + 1 != 10 or self.erred:
            return loss
        self.erred = True
        return loss * (1 + 1e-6)


@pytest.mark.parametrize("plan", quick_ones(PLANS, "plain"))
def test_a_healthy_trainer_ends_with_the_same_bits(tmp_path, plan):
    ends = []
    for every in (0, 5):
        watch = StayFinite(policy=Policy(replay_every=every))
        trainer = trained(tmp_path / str(every), watch, **PLANS[plan])
        ends.append(weights(trainer))
    assert same(*ends)
    (told,) = events(tmp_path / "5", "replays")
    assert (told["replayed"], told["mismatches"]) == (3 + 4, 0)
    assert not events(tmp_path / "5", "replay-restricted")


def test_a_step_that_a_re_run_does_not_repeat_is_refused(tmp_path):
    trained(tmp_path, StayFinite(policy=Policy(replay_every=5)), kind=Erring)
    (veto,) = events(tmp_path, "veto")
    assert (veto["step"], veto["code"]) == (10, "replay-mismatch")
    assert events(tmp_path, "replay-mismatch")[0]["kind"] == "transient"
