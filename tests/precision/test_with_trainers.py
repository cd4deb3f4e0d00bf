"""A plan applied before a trainer is built: it computes by the plan there, a bad step is refused, others go on."""

import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_training import LIGHTNING_SAYS
from precision import small_models as small
from precision.test_applying import plan_of
from stayfinite import Guard

pytestmark = LIGHTNING_SAYS


def plan_for(model, kept):
    return plan_of(model, **{kept: "fp32"})


class JudgedStep:
    """What linear layers gave out while the model trained."""

    def __init__(self, model):
        self.dtypes = {}
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(lambda _m, _a, out, name=name: self.note(name, out.dtype))

    def note(self, name, dtype):
        self.dtypes.setdefault(name, set()).add(dtype)

    def only(self, kept):
        """Whether this one was in fp32 and no other by itself: an autopsy re-runs a step in fp32 as well."""
        assert self.dtypes.pop(kept) == {torch.float32}
        return all(torch.bfloat16 in each for each in self.dtypes.values())


def test_in_transformers_trainer(tmp_path):
    from transformers import LlamaForCausalLM, Trainer

    from stayfinite.integrations.transformers import StayFinite
    from tiny_trainers import Tokens, arguments, events, tiny_llama

    class Spoilt(Trainer):
        def compute_loss(self, model, inputs, *args, **kwargs):
            found = super().compute_loss(model, inputs, *args, **kwargs)
            return found * float("nan") if model.training and self.state.global_step == 5 else found

    model, kept = tiny_llama(), "model.layers.1.mlp.down_proj"
    plan = plan_for(model, kept)
    plan.apply(model)
    heard = JudgedStep(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = Spoilt(model, arguments(tmp_path, max_steps=8), train_dataset=Tokens(), callbacks=[StayFinite()])
    trainer.train()
    assert heard.only(kept)
    assert [each["step"] for each in events(tmp_path, "veto")] == [6]
    assert all(p.isfinite().all() and not torch.equal(p, before[name]) for name, p in model.named_parameters())
    # What is saved is a plain model.
    trainer.save_model(tmp_path / "saved")
    plain = LlamaForCausalLM.from_pretrained(tmp_path / "saved")
    plan.undo(model)
    ids = Tokens()[0]["input_ids"][None]
    torch.testing.assert_close(plain(ids).logits, model.eval()(ids).logits)


def test_in_lightning(tmp_path):
    from lightning_training import Regression, Witness, build, events, fit, guarded

    module, witness = build(Regression, "inf-loss", (7,)), Witness()
    plan_for(module.net, "down").apply(module.net)
    heard = JudgedStep(module.net)
    fit(tmp_path, [guarded(tmp_path), witness], module)
    assert heard.only("down")
    assert witness.untouched == [7]
    assert len(events(tmp_path, "veto")) == 1
    assert all(bool(p.isfinite().all()) for p in module.parameters())


def test_with_accelerate(tmp_path):
    from accelerate import Accelerator

    from accelerate_training import Net, events
    from stayfinite.integrations.accelerate import accelerate_guard

    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = Net()
    plan_for(model, "down").apply(model)
    heard = JudgedStep(model)
    x = torch.randn(48, 6)
    x[17] = float("nan")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rows = TensorDataset(x, x.sum(1, keepdim=True))
    model, optimizer, batches = accelerator.prepare(model, optimizer, DataLoader(rows, batch_size=8))
    accelerate_guard(accelerator, model, optimizer, run_dir=tmp_path, console=None)
    for x, y in batches:
        loss = (model(x) - y).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    assert heard.only("down")
    assert [each["step"] for each in events(tmp_path, "veto")] == [3]
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_the_autopsy_of_a_planned_model_proves_its_cause_and_leaves_the_plan(tmp_path):
    model, optimizer, ids, _ = small.training(small.healthy())
    plan = plan_for(model, "blocks.0.down")
    plan.apply(model)

    def forward(batch):
        ids, weights = batch
        each = nn.functional.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:], reduction="none").mean(1)
        return (each * weights).mean()

    guard = Guard(model, optimizer, run_dir=tmp_path, forward=forward)
    weights = torch.ones(4, ids.shape[0])
    weights[2, 1] = float("nan")
    for batch in guard.batches([(ids, each) for each in weights]):
        guard.step(guard.forward(batch))
    guard.close()
    (cause,) = tmp_path.glob("incidents/*/autopsy.json")
    assert json.loads(cause.read_text())["cause"] == "bad-data-row"
    heard = JudgedStep(model)
    forward((ids, weights[0]))
    assert heard.only("blocks.0.down")
