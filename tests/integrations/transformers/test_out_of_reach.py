"""Where a step cannot be refused it is said, and training goes on as it would have."""

import pytest
from accelerate.utils import DistributedType

from stayfinite.errors import OrderError, UsageError
from stayfinite.integrations.transformers import NotGuarded, StayFinite, seams
from tiny_trainers import same, tiny_trainer, trained, weights


def test_an_engine_without_reach_is_recognised_and_explained(tmp_path):
    trainer = trained(tmp_path, max_steps=1)
    trainer.accelerator.state.distributed_type = DistributedType.XLA
    try:
        reason = seams.why_not(trainer)
    finally:
        trainer.accelerator.state.distributed_type = DistributedType.NO
    assert "inside its own engine" in reason
    assert seams.why_not(trainer) == ""


def test_a_training_that_cannot_be_guarded_is_not_changed(tmp_path, monkeypatch):
    monkeypatch.setattr("stayfinite.integrations.transformers.callback.why_not", lambda _: "the engine steps by itself")
    plain = tiny_trainer(tmp_path / "plain", bad=(3,), max_steps=4)
    trainer = tiny_trainer(tmp_path / "out", StayFinite(), max_steps=4, save_strategy="steps", save_steps=2)
    with pytest.warns(NotGuarded, match="the engine steps by itself"):
        trainer.train()
    other = trained(tmp_path / "other", max_steps=4)
    assert same(weights(trainer), weights(other))
    assert not same(weights(trainer), weights(plain))
    assert not (tmp_path / "out" / "stayfinite").exists()


def test_a_transformers_without_the_needed_methods_is_refused_with_the_version_that_has_them(monkeypatch):
    monkeypatch.delattr(seams.Trainer, "_run_epoch")
    with pytest.raises(UsageError, match="pip install 'transformers>="):
        StayFinite()


def test_a_callback_without_a_trainer_says_so():
    with pytest.raises(OrderError, match="callbacks="):
        StayFinite().on_train_begin(None, None, None)
