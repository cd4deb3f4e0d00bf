"""Rates, formats, tokens and splits: each fault beside the healthy plan that only looks like it."""

from pathlib import Path

import pytest

from stayfinite.inspection.files.inspecting import inspect_files

TUNE = """
model:
  _component_: torchtune.models.llama3.{model}
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: /models/llama3
  model_type: LLAMA3
optimizer:
  _component_: torch.optim.AdamW
  lr: {rate}
epochs: 1
dtype: bf16
"""
DEEP = """{{
  "train_batch_size": 64,
  "optimizer": {{"type": "AdamW", "params": {{"lr": 1e-4}}}},
  "fp16": {{"enabled": true, "loss_scale": {}}}
}}"""
TRANSFORMER = """
import torch
from torch import nn
net = nn.Sequential(nn.Embedding(999, 64), nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4), 2))
opt = torch.optim.Adam(net.parameters(), lr={})
for x in loader:
    opt.zero_grad()
    loss = net(x).pow(2).mean()
    loss.backward()
    opt.step()
"""
OWN_LOOP = """
import torch
from transformers import AutoModelForCausalLM
net = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B", torch_dtype=torch.bfloat16).cuda()
opt = torch.optim.AdamW(net.parameters(), lr={})
for batch in loader:
    opt.zero_grad()
    loss = net(**batch).loss
    loss.backward()
    opt.step()
"""
PICTURES = """
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
base = "stabilityai/stable-diffusion-xl-base-1.0"
coder = AutoencoderKL.from_pretrained({}, subfolder="vae")
net = UNet2DConditionModel.from_pretrained(base, subfolder="unet")
coder.to("cuda", dtype=torch.float16)
opt = torch.optim.AdamW(net.parameters(), lr=1e-5)
"""
TALK = """
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
words = AutoTokenizer.from_pretrained("gpt2")
words.add_special_tokens({{"pad_token": "{token}"}})
net = AutoModelForCausalLM.from_pretrained("gpt2")
{then}
args = TrainingArguments("out", learning_rate=5e-5, num_train_epochs=3)
Trainer(model=net, args=args, train_dataset=data).train()
"""
SPLIT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, random_split
from rows import Rows
rows = Rows()
many, few = random_split(rows, [900, 100])
train, val = DataLoader({given}, 32, shuffle=True), DataLoader(few, 32)
net = nn.Linear(8, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(9):
    for x, y in train:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        opt.step()
    with torch.no_grad():
        print(sum((net(x).argmax(1) == y).sum().item() for x, y in val) / 100)
"""
FALLING = """
import torch
net = torch.nn.Linear(8, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
plan = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: max(0, 900 - step) {} 900)
for x, y in loader:
    opt.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    opt.step()
    plan.step()
"""
ANSWERS = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
words = AutoTokenizer.from_pretrained("gpt2")
def rows(row):
    asked = words(row["asked"], max_length=512, padding={padding}, truncation=True)
    said = words(row["said"])
    labels = [-100] * len(asked["input_ids"]) + said["input_ids"]
    return {{"input_ids": (asked["input_ids"] + said["input_ids"])[:512], "labels": labels[:512]}}
net = AutoModelForCausalLM.from_pretrained("gpt2")
args = TrainingArguments("out", learning_rate=5e-5, num_train_epochs=3)
Trainer(model=net, args=args, train_dataset=data.map(rows)).train()
"""
FACTORY = """
import torch
from transformers import Trainer, TrainingArguments
TEMPLATE = "Question: {question}"
def train(net, rows, {limit}: int = 512):
    args = TrainingArguments("out", eval_strategy="steps", learning_rate=2e-5, num_train_epochs=3)
    Trainer(model=net, args=args, train_dataset=rows["train"], eval_dataset=rows["test"]).train()
"""

FAULTS = {
    "a whole model at the rate of an adapter": (
        "tune.yaml", "lr-too-high", TUNE.format(model="llama3_8b", rate="3e-3"),
        TUNE.format(model="lora_llama3_8b", rate="3e-3"),
    ),
    "a fixed scale of 1": ("deep.json", "fp16-underflow", DEEP.format(1), DEEP.format(0)),
    "a transformer at a rate of 0.05": (
        "train.py", "lr-too-high", TRANSFORMER.format(0.05), TRANSFORMER.format(0.001),
    ),
    "updates below the last digit": (
        "train.py", "bf16-lost-updates", OWN_LOOP.format("1e-6"),
        OWN_LOOP.format("1e-6").replace("bfloat16", "float32"),
    ),
    "SDXL's own coder in fp16": (
        "train.py", "fp16-overflow-model-family", PICTURES.format("base"),
        PICTURES.format('"madebyollin/sdxl-vae-fp16-fix"'),
    ),
    "a token without a row": (
        "train.py", "token-id-out-of-range", TALK.format(token="<pad>", then=""),
        TALK.format(token="<pad>", then="net.resize_token_embeddings(len(words))"),
    ),
    "a token that is there already": (
        "train.py", "token-id-out-of-range", TALK.format(token="[PAD]", then=""),
        TALK.format(token="<|endoftext|>", then=""),
    ),
    "a rate that is rounded down": ("train.py", "lr-zero", FALLING.format("//"), FALLING.format("/")),
    "answers after the padding": (
        "train.py", "all-labels-masked", ANSWERS.format(padding="'max_length'"), ANSWERS.format(padding="False"),
    ),
    "the whole data set after its split": (
        "train.py", "train-val-overlap", SPLIT.format(given="rows"), SPLIT.format(given="many"),
    ),
}  # fmt: skip


def causes(file: str, text: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(here)
    (here / file).write_text(text)
    return [each.cause for each in inspect_files([file]).findings]


@pytest.mark.parametrize("name", FAULTS)
def test_a_value_is_named_and_what_looks_like_it_is_left_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, cause, sick, healthy = FAULTS[name]
    assert causes(file, sick, tmp_path, monkeypatch) == [cause]
    assert causes(file, healthy, tmp_path, monkeypatch) == []


def test_a_parameter_named_as_a_setting_of_another_framework_is_no_such_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert causes("train.py", FACTORY.replace("{limit}", "cutoff_len"), tmp_path, monkeypatch) == []
