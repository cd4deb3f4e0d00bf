"""What is left to a default depends on the release that is installed."""

import pytest

from inspection.files.faulty import LORA
from stayfinite.inspection.files.inspecting import inspect_files


@pytest.mark.parametrize(("release", "causes"), [("4.57.1", ["gradient-checkpointing-no-input-grad"]), ("5.3.0", [])])
def test_checkpoints_that_are_left_to_their_default_let_gradients_through_since_transformers_5(
    tmp_path, monkeypatch, release, causes
):
    monkeypatch.setattr("stayfinite.inspection.files.card.metadata.version", lambda _: release)
    script = tmp_path / "train.py"
    script.write_text(LORA.format(more="gradient_checkpointing=True"))
    assert [finding.cause for finding in inspect_files([str(script)]).findings] == causes
