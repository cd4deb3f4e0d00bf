"""Objects with a state, values behind other names: each sick script beside the healthy one that looks like it."""

import json
from pathlib import Path

import pytest

from stayfinite.inspection.files.inspecting import inspect_files

SETS = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from sets import Sets
def together(rows):
    points, labels = zip(*rows)
    sizes = torch.tensor([len(each) for each in points])
    seen = torch.arange(int(sizes.max())).unsqueeze(0) {sign} sizes.unsqueeze(1)
    return nn.utils.rnn.pad_sequence(points, batch_first=True), seen, torch.tensor(labels)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 1)
        self.head = nn.Linear(8, 3)
    def forward(self, points, mask):
        return self.head(self.encoder(points, src_key_padding_mask={mask}).mean(1))
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for points, seen, y in DataLoader(Sets(), 8, collate_fn=together):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(points, seen.cuda()), y).backward()
    optimizer.step()
"""
DISTILLED = """
import pytorch_lightning as pl
import torch
from torch import nn
import torch.nn.functional as F
class Pupil(pl.LightningModule):
    def __init__(self, teacher):
        super().__init__()
        self.small, self.teacher = nn.Linear(8, 3), teacher
    def soft(self, scores):
        return F.{softmax}(scores / 2, dim=-1)
    def training_step(self, batch, index):
        return F.kl_div(self.soft(self.small(batch[0])), F.softmax(self.teacher(batch[0]), dim=-1))
    def configure_optimizers(self):
        return torch.optim.Adam(self.small.parameters(), lr=1e-3)
"""
RANKS = """
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))).cuda()
net = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def loss_of(model, x, y):
    inner = model.module if hasattr(model, "module") else model
    return nn.functional.mse_loss({called}(x), y) + 0.0 * inner[0].weight.sum()
for x, y in loader:
    optimizer.zero_grad()
    loss_of(net, x, y).backward()
    optimizer.step()
"""
MEASURED = """
import torch
from torch import nn
from torchmetrics.classification import MulticlassAccuracy
net = nn.Linear(8, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{outside}
for epoch in range(9):
    {inside}
    for x, y in loader:
        out = net(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(out, y).backward()
        optimizer.step()
        accuracy.update(out, y)
    print(accuracy.compute())
"""
SEEDED = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
def seed_all(number):
    np.random.seed(number)
    torch.manual_seed(number)
def begin(worker):
    seed_all({number})
class Noisy(Dataset):
    def __getitem__(self, i):
        return np.random.normal(size=8)
options = dict(num_workers=4, worker_init_fn=begin)
loader = DataLoader(Noisy(), 8, **options)
"""
SCALED = """
import torch
from torch import nn
net = nn.Linear(8, 3).cuda()
optimizer = torch.optim.Adam(net.parameters())
scaler = torch.cuda.amp.GradScaler({enabled})
for x, y in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    {after}
"""
PACKED = """
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("EleutherAI/pythia-70m")
def pack(rows):
    flat = sum(rows["input_ids"], [])
    inputs = [flat[i:i + 64] for i in range(0, len(flat) - 64, 64)]
    labels = [flat[i{more}:i{more} + 64] for i in range(0, len(flat) - 64, 64)]
    return {{"input_ids": inputs, "labels": labels}}
model = AutoModelForCausalLM.from_pretrained("EleutherAI/pythia-70m")
Trainer(model, TrainingArguments("o", learning_rate=1e-4), train_dataset=rows.map(pack, batched=True)).train()
"""
ACCURACY = "accuracy = MulticlassAccuracy(3)"
FAULTS = {
    "a mask of what a batch holds": (
        "attention-fully-masked-row", SETS.format(sign="<", mask="mask"), SETS.format(sign=">=", mask="mask")),
    "a mask that is turned": (
        "attention-fully-masked-row", SETS.format(sign="<", mask="mask"), SETS.format(sign="<", mask="~mask")),
    "probabilities in a Lightning step": (
        "probability-loss-on-logits", DISTILLED.format(softmax="softmax"), DISTILLED.format(softmax="log_softmax")),
    "the inner model by another name": (
        "rank-desync", RANKS.format(called="inner"), RANKS.format(called="model")),
    "a metric of all epochs": (
        "metric-not-reset", MEASURED.format(outside=ACCURACY, inside="pass"),
        MEASURED.format(outside=ACCURACY, inside="accuracy.reset()")),
    "a metric of each epoch": (
        "metric-not-reset", MEASURED.format(outside=ACCURACY, inside="pass"),
        MEASURED.format(outside="pass", inside=ACCURACY)),
    "one seed for all workers": (
        "workers-alike", SEEDED.format(number="7"), SEEDED.format(number="7 + worker")),
    "a scaler without update": (
        "step-fails", SCALED.format(enabled="", after="pass"), SCALED.format(enabled="", after="scaler.update()")),
    "a scaler that is off": (
        "step-fails", SCALED.format(enabled="enabled=True", after="pass"),
        SCALED.format(enabled="enabled=False", after="pass")),
    "labels shifted twice": ("target-out-of-step", PACKED.format(more=" + 1"), PACKED.format(more="")),
}  # fmt: skip


def causes(text: str, name: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(here)
    (here / name).write_text(text)
    return [each.cause for each in inspect_files([name]).findings]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_what_looks_like_it_is_left_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cause, sick, healthy = FAULTS[name]
    assert causes(sick, "train.py", tmp_path, monkeypatch) == [cause]
    assert causes(healthy, "train.py", tmp_path, monkeypatch) == []


ADDED = """!pip install transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
tok = AutoTokenizer.from_pretrained("gpt2")
tok.add_tokens(["<|turn|>"])
model = AutoModelForCausalLM.from_pretrained("gpt2")
{then}
Trainer(model, TrainingArguments("o", learning_rate=1e-5), train_dataset=rows).train()
"""


@pytest.mark.parametrize(("then", "told"), [("", True), ("model.resize_token_embeddings(len(tok))", False)])
def test_tokens_of_notebooks_are_counted(
    then: str, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ADDED.format(then=then).splitlines(keepends=True)
    cells = [{"cell_type": "code", "metadata": {}, "source": lines, "execution_count": None, "outputs": []}]
    book = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    assert causes(book, "a.ipynb", tmp_path, monkeypatch) == ["token-id-out-of-range"] * told


WRITTEN = """
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments
model = AutoModelForSeq2SeqLM.from_pretrained("t5-small")
args = Seq2SeqTrainingArguments("o", predict_with_generate=True, learning_rate=1e-4)
Seq2SeqTrainer(model=model, args=args, train_dataset=rows{more}).train()
"""


@pytest.mark.parametrize(("more", "told"), [(", compute_metrics=rouge", True), ("", False)])
def test_nothing_is_generated_without_metrics(
    more: str, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = causes(WRITTEN.format(more=more), "train.py", tmp_path, monkeypatch)
    assert ("generation-too-short" in found) is told
