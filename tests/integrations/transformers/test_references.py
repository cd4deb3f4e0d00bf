"""A reference model that is no reference is told of in the first step; one that is, or that trl moves, is quiet."""

import pytest
import torch
from torch import nn

from stayfinite import rl
from stayfinite.integrations.transformers import StayFinite
from tiny_trainers import events, tiny_llama
from tiny_trl import COMMON, rows_for, tokenizer, trl_trainer

trl = pytest.importorskip("trl")
peft = pytest.importorskip("peft")


def signs(folder):
    return [(event["cause"], event["step"]) for event in events(folder, "sign")]


def adapted_dpo(folder, *, shares_adapter):
    """DPO of an adapter. ``get_peft_model`` puts it into the base itself, which is then no reference any more."""
    base = tiny_llama()
    policy = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    args = trl.DPOConfig(output_dir=str(folder), **COMMON | {"learning_rate": 1e-3})
    trainer = trl.DPOTrainer(
        model=policy, args=args, train_dataset=rows_for("dpo"), processing_class=tokenizer(), callbacks=[StayFinite()]
    )
    if shares_adapter:
        trainer.ref_model = base
    return trainer


def test_a_reference_with_the_policy_s_adapter_in_it_is_told_of(tmp_path):
    adapted_dpo(tmp_path, shares_adapter=True).train()
    assert signs(tmp_path) == [("reference-moves", 1)]
    assert "shares the adapter" in events(tmp_path, "sign")[0]["reason"]


def test_an_adapter_without_a_reference_of_its_own_is_healthy(tmp_path):
    adapted_dpo(tmp_path, shares_adapter=False).train()
    assert signs(tmp_path) == []


def test_a_reference_that_is_the_policy_is_told_of(tmp_path):
    trainer = trl_trainer("grpo", tmp_path, StayFinite())
    trainer.ref_model = trainer.model
    trainer.train()
    assert ("reference-moves", 1) in signs(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["grpo", "dpo"])
def test_a_reference_that_trl_lets_follow_is_healthy(tmp_path, kind):
    follows = {"sync_ref_model": True, "ref_model_sync_steps": 2, "ref_model_mixup_alpha": 0.5}
    trainer = trl_trainer(kind, tmp_path, StayFinite(), **follows)
    before = [each.clone() for each in trainer.ref_model.parameters()]
    trainer.train()
    assert not all(torch.equal(one, two) for one, two in zip(before, trainer.ref_model.parameters(), strict=True))
    assert signs(tmp_path) == []


def test_a_plain_loop_can_ask():
    policy, reference = nn.Linear(4, 2), nn.Linear(4, 2)
    both = [*policy.parameters(), *reference.parameters()]
    assert rl.Reference(policy, policy).fault() == "the reference is the policy itself"
    assert "the optimizer trains 2 weights" in rl.Reference(policy, reference, torch.optim.SGD(both, lr=0.1)).fault()
    sound = rl.Reference(policy, reference, torch.optim.SGD(policy.parameters(), lr=0.1))
    assert (sound.fault(), sound.moved()) == ("", [])
    with torch.no_grad():
        reference.weight.lerp_(policy.weight, 0.1)
    assert sound.moved() == ["weight"]
