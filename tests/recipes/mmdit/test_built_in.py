from __future__ import annotations

import json

import pytest

from mmdit_runs import steps_of
from stayfinite.recipes.mmdit import Mmdit, settled, train


@pytest.mark.slow
@pytest.mark.timeout(2800)
def test_the_built_in_set_is_learned_in_both_directions(tmp_path):
    said: list[str] = []
    result = train(settled(Mmdit(output_dir=str(tmp_path / "run"), device="cpu")), said.append)
    assert result is not None
    assert result.last_loss < 0.25 * result.first_loss
    assert result.scores.token_accuracy > 0.95
    assert result.scores.token_chance < 0.5
    assert result.scores.latent_correlation > 0.5
    assert all(line["loss"] == line["loss"] for line in steps_of(tmp_path / "run")), "no NaN"
    assert "check: ready to launch" in "\n".join(said)
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["scores"]["token_accuracy"] == result.scores.token_accuracy
    assert (tmp_path / "run" / "checkpoints").is_dir()
