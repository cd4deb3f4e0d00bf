"""An autopsy tries last known-good weights, and must leave them as good as they were."""

from __future__ import annotations

import torch

from guarded_training import NAN, GuardedTraining
from stayfinite import Policy


def test_running_statistics_of_the_known_good_state_survive_an_autopsy(tmp_path):
    training = GuardedTraining(
        tmp_path, policy=Policy(prove_steps=2, max_vetoes_in_a_row=2, patience=1, max_cuts=0, snapshot_share=1.0)
    )
    training.steps(12)
    training.steps(3, NAN)
    assert [str(each.action) for each in training.guard.decisions[-3:]] == ["veto", "veto", "rollback"]
    assert bool(torch.isfinite(training.model.mean).all())
    training.steps(5)
    assert bool(torch.isfinite(training.model.mean).all())
