"""A loop by hand with accelerate: its steps are run again from the model's own calls, and end with the same bits."""

import pytest

pytest.importorskip("accelerate")

from accelerate_training import Training
from guarded_training import events
from stayfinite import Policy


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("own_loss", [False, True])
def test_a_healthy_loop_ends_with_the_same_bits(tmp_path, own_loss, steps):
    ends = []
    for every in (0, 5):
        guard = {"policy": Policy(replay_every=every), "run_dir": tmp_path / str(every)}
        training = Training(guard, own_loss=own_loss, accelerator={"gradient_accumulation_steps": steps})
        training.epoch()
        training.close()
        ends.append(training.everything())
        assert not any(training.skipped)
    assert ends[0] == ends[1]
    off = events(tmp_path / "5", "replay-not-run") + events(tmp_path / "5", "replay-off")
    if own_loss:
        # The loop computes its loss outside of the model, so nobody else can.
        assert len(off) == 1
    else:
        assert off == []
        assert [each["mismatches"] for each in events(tmp_path / "5", "replays")] == [0]
        assert not events(tmp_path / "5", "replay-restricted")
