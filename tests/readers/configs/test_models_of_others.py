"""Models whose layers nobody sees, modules beside a script, steps that frameworks call; each with a healthy twin."""

import ast
from pathlib import Path

import pytest

from stayfinite.readers.configs import read_config
from stayfinite.readers.configs.judges import script_faults

LOADED = """
import torch, timm
from torch import nn
from transformers import AutoModelForSequenceClassification
from peft import get_peft_model, LoraConfig
from data import loader
model = AutoModelForSequenceClassification.from_pretrained("bert", num_labels=3).to("cuda")
{before}
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
{middle}
for batch in loader:
    optimizer.zero_grad()
    {forward}
    loss.backward()
    optimizer.step()
"""


def causes(before: str = "", middle: str = "", forward: str = "loss = model(**batch).loss") -> list[str]:
    text = LOADED.format(before=before, middle=middle, forward=forward)
    return [each.cause for each in script_faults(ast.parse(text), text)[0]]


FREEZE = "for p in model.parameters(): p.requires_grad = False"
ADAPT = "model = get_peft_model(model, LoraConfig(r=8))"
HEAD = "model.classifier = nn.Linear(768, 7)"
LOSS = "\n    loss = nn.functional.cross_entropy(out, batch['labels'])"


@pytest.mark.parametrize(
    ("cause", "before", "middle", "forward"),
    [
        ("params-not-in-optimizer", "", HEAD, "loss = model(**batch).loss"),
        ("params-not-in-optimizer", "", ADAPT, "loss = model(**batch).loss"),
        ("params-not-in-optimizer", "", "model = timm.create_model('vit')", "loss = model(batch).mean()"),
        ("params-frozen", FREEZE, "", "loss = model(**batch).loss"),
        ("detached-loss", "", "", "with torch.no_grad():\n        out = model(**batch).logits" + LOSS),
        ("detached-loss", "", "", "out = model(**batch).logits.argmax(-1).float()" + LOSS),
    ],
)
def test_a_model_of_other_code_has_weights_that_are_followed(
    cause: str, before: str, middle: str, forward: str
) -> None:
    assert causes(before, middle, forward) == [cause]


@pytest.mark.parametrize(
    ("before", "middle"),
    [
        (HEAD, ""),
        (ADAPT, ""),
        (FREEZE + "\nfor p in model.get_classifier().parameters(): p.requires_grad = True", ""),
        (FREEZE + "\nmodel.unfreeze_last_layers(2)", ""),
        ("", HEAD + "\noptimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)"),
        ("", HEAD + "\noptimizer.add_param_group({'params': model.classifier.parameters()})"),
        ("", "model.gradient_checkpointing_enable()"),
    ],
)
def test_a_model_that_is_complete_before_its_optimizer_is_left_in_peace(before: str, middle: str) -> None:
    assert causes(before, middle) == []


def test_a_new_head_that_is_frozen_with_the_rest_is_named() -> None:
    rest = "\nmodel.scale = nn.Parameter(torch.ones(1))\n"
    assert causes(HEAD + "\n" + FREEZE + rest) == ["params-frozen"]
    assert causes(FREEZE + "\n" + HEAD + rest) == []


def test_a_comparison_sets_nothing() -> None:
    assert causes("for p in model.pooler.parameters(): p.requires_grad == True") == ["params-frozen"]
    assert causes("for p in model.pooler.parameters(): p.requires_grad = True") == []


TARGET = """
import copy, torch
from torch import nn
from data import loader
class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.head = nn.Linear(8, 8), nn.Linear(8, 8)
        self.target = {target}
        for p in self.target.parameters():
            p.requires_grad = False
    def forward(self, a, b):
        return -(self.head(self.online(a)) * self.target(b)).mean()
model = Pair()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for a, b in loader:
    loss = model(a, b)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_frozen_target_has_to_be_a_copy() -> None:
    for target, expected in (("self.online", ["params-frozen"]), ("copy.deepcopy(self.online)", [])):
        text = TARGET.format(target=target)
        assert [each.cause for each in script_faults(ast.parse(text), text)[0]] == expected


RANKS = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from net import Net
from data import loader
model = DDP(Net().cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    loss = {call}(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.save(model.module.state_dict(), "net.pt")
"""


def test_a_model_is_called_through_what_averages_its_gradients() -> None:
    for call, expected in (("model.module.encode", ["rank-desync"]), ("model.module", ["rank-desync"]), ("model", [])):
        text = RANKS.format(call=call)
        assert [each.cause for each in script_faults(ast.parse(text), text)[0]] == expected


STEP = """
import torch
from torch import nn
import torch.nn.functional as F
import pytorch_lightning as pl
class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        {init}
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 2)
    {decorator}
    def features(self, x):
        return self.body(x)
    def training_step(self, batch, index):
        x, y = batch
        loss = F.cross_entropy(self.head(self.features(x)), y)
        {end}
    def configure_optimizers(self):
        return torch.optim.Adam([*self.body.parameters(), *self.head.parameters()], lr=1e-3)
"""


def told(folder: Path, text: str, **beside: str) -> list[tuple[str, str]]:
    """Cause and file of each fault of a script, with modules beside it."""
    for name, code in beside.items():
        (folder / f"{name}.py").write_text(code)
    (folder / "train.py").write_text(text)
    faults = read_config(folder / "train.py").code_faults
    return [(each.cause, Path(each.where.rpartition(":")[0]).name) for each in faults]


@pytest.mark.parametrize(
    ("cause", "init", "decorator", "end"),
    [
        ("step-missing", "pass", "", "self.log('loss', loss)"),
        ("detached-loss", "pass", "", "return loss.detach()"),
        ("detached-loss", "pass", "@torch.no_grad()", "return loss"),
        ("", "pass", "", "return {'loss': loss, 'y': y}"),
        ("", "self.automatic_optimization = False", "", "self.manual_backward(loss)"),
    ],
)
def test_lightning_runs_backward_on_what_a_step_returns(
    cause: str, init: str, decorator: str, end: str, tmp_path: Path
) -> None:
    found = told(tmp_path, STEP.format(init=init, decorator=decorator or "# plain", end=end))
    assert {each for each, _ in found} == ({cause} if cause else set())


ORDINAL = """
import torch
from transformers import Trainer
class Ordinal(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = torch.nn.functional.l1_loss(outputs.logits{rank}, labels.float())
        return (loss, outputs) if return_outputs else loss
"""


def test_a_trainer_runs_backward_on_what_compute_loss_returns(tmp_path: Path) -> None:
    assert told(tmp_path, ORDINAL.format(rank=".argmax(-1).float()")) == [("detached-loss", "train.py")]
    assert told(tmp_path, ORDINAL.format(rank=".softmax(-1) @ ranks")) == []


MAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from nets import Net
def main():
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for x, y in DataLoader(rows):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
main()
"""
NETS = """
from torch import nn
def stack(sizes, last=None):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers.append(nn.Linear(a, b))
    if last is not None:
        layers.append(last)
    return nn.Sequential(*layers)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = {blocks}
        self.out = stack([8, 4, 2]{last})
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)
"""
BLOCKS = "nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])"


@pytest.mark.parametrize(
    ("cause", "blocks", "last"),
    [
        ("", BLOCKS, ""),
        ("unregistered-module", "[nn.Linear(8, 8) for _ in range(3)]", ""),
        ("softmax-before-cross-entropy", BLOCKS, ", last=nn.Softmax(dim=-1)"),
    ],
)
def test_a_module_beside_the_script_is_judged_with_it(cause: str, blocks: str, last: str, tmp_path: Path) -> None:
    expected = {(cause, "nets.py")} if cause else set()
    assert set(told(tmp_path, MAIN, nets=NETS.format(blocks=blocks, last=last))) == expected


ENGINE = """
import torch
class Engine:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.scaler = model, optimizer, torch.amp.GradScaler()
    def limit(self):
        {unscale}
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
    def step(self, x, y):
        with torch.autocast("cuda", torch.float16):
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
        self.scaler.scale(loss).backward()
        self.limit()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
"""


def test_clipping_in_a_method_of_its_own_is_in_time_or_not(tmp_path: Path) -> None:
    assert told(tmp_path, ENGINE.format(unscale="pass")) == [("clip-before-unscale", "train.py")]
    assert told(tmp_path, ENGINE.format(unscale="self.scaler.unscale_(self.optimizer)")) == []


ADAPTERS = """
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from peft import get_peft_model, LoraConfig
def adapted(model):
    return get_peft_model(model, LoraConfig(r=4))
model = AutoModelForCausalLM.from_pretrained("gpt2")
{steps}
trainer = Trainer(model, TrainingArguments("out"), train_dataset=data, optimizers=(optimizer, None))
trainer.train()
"""
BUILT = "optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)"


def test_adapters_made_after_the_optimizer_of_a_trainer_are_never_trained(tmp_path: Path) -> None:
    late = ADAPTERS.format(steps=f"{BUILT}\nmodel = adapted(model)")
    early = ADAPTERS.format(steps=f"model = adapted(model)\n{BUILT}")
    assert "params-not-in-optimizer" in [cause for cause, _ in told(tmp_path, late)]
    assert "params-not-in-optimizer" not in [cause for cause, _ in told(tmp_path, early)]


WEIGHED = """
import torch
from torch import nn
class Mixer(nn.Module):
    def __init__(self, width, over={over}):
        super().__init__()
        self.over = over
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
    def forward(self, x, mask):
        scores = self.q(x) @ self.k(x).transpose(-1, -2) * 0.125
        weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=self.over)
        return {returned}
"""


@pytest.mark.parametrize(
    ("over", "returned", "found"),
    [
        ("-2", "weights @ self.v(x)", True),
        ("-1", "weights @ self.v(x)", False),
        ("-2", "weights.transpose(-1, -2) @ self.v(x)", False),
    ],
)
def test_weights_of_attention_sum_to_1_over_the_keys(over: str, returned: str, found: bool, tmp_path: Path) -> None:
    faults = told(tmp_path, WEIGHED.format(over=over, returned=returned))
    assert ("softmax-axis" in [cause for cause, _ in faults]) == found
