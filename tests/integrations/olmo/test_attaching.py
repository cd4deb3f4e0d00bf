"""``stayfinite doctor``: an OLMo-core script as it is gets the callback; a composer script is told what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from child_processes import finish
from stayfinite import Guard, Policy
from stayfinite.errors import ModelError
from stayfinite.integrations.attaching import attached

SCRIPT = Path(__file__).parents[2] / "olmo_script.py"


@pytest.mark.slow
def test_an_olmo_script_is_guarded_and_says_so(tmp_path):
    pytest.importorskip("olmo_core", reason="make engines")
    words = [sys.executable, "-m", "stayfinite", "doctor", "--guard", "--json", str(SCRIPT), str(tmp_path), "9"]
    ended = finish(words)
    found = json.loads(ended.stdout)
    assert found["attached"] == 1
    assert found["runs"] == [str(tmp_path / "save" / "stayfinite")]
    assert "trained True" in ended.stderr
    steps = [json.loads(line) for line in (tmp_path / "save" / "stayfinite" / "steps.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps if step["decision"] == "veto"] == [9]


@pytest.fixture
def composer(tmp_path, monkeypatch):
    """A stand-in for the package, with the two names that are met."""
    (tmp_path / "composer" / "trainer").mkdir(parents=True)
    (tmp_path / "composer" / "__init__.py").touch()
    (tmp_path / "composer" / "trainer" / "__init__.py").touch()
    (tmp_path / "composer" / "trainer" / "trainer.py").write_text("class Trainer:\n    pass\n")
    (tmp_path / "composer" / "models.py").write_text(
        "from torch import nn\n\n\nclass ComposerModel(nn.Linear):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("composer")
def test_who_uses_composer_is_told_what_to_do_and_who_does_not_is_left_alone():
    said: list[str] = []
    with attached(Policy(), said.append) as found:
        from composer.trainer.trainer import Trainer

        Trainer()
    assert not found.guards
    assert "cannot attach to Trainer: composer's Trainer runs backward" in said[0]
    from composer.models import ComposerModel

    model = ComposerModel(2, 2)
    with pytest.raises(ModelError, match="train the inner torch module with Guard"):
        Guard(model, torch.optim.SGD(model.parameters()))
    plain = nn.Linear(2, 2)
    Guard(plain, torch.optim.SGD(plain.parameters())).close()
