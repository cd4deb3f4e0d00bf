"""Training scripts in the styles that people write: what each says once its values are followed, and where."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Style:
    """One project; its first file is the one that is read."""

    files: dict[str, str]
    says: dict[str, Any]
    """Names of settings, and their values."""
    places: dict[str, str] = field(default_factory=dict)
    """Names of settings, and where their values are written."""
    causes: frozenset[str] = frozenset()
    """What `stayfinite check` finds; nothing, for a project that works."""


STYLES: dict[str, Style] = {}

STYLES["kwargs by the device"] = Style(
    files={
        "train.py": """\
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, Seq2SeqTrainer, Seq2SeqTrainingArguments

MODEL_NAME = "google/mt5-small"
device = "cuda" if torch.cuda.is_available() else "cpu"
load_kwargs = {"torch_dtype": torch.float16 if device == "cuda" else torch.float32}
tokenizer = AutoTokenizer.from_pretrained(MODEL_NAME)
model = AutoModelForSeq2SeqLM.from_pretrained(MODEL_NAME, **load_kwargs).to(device)
args = Seq2SeqTrainingArguments(
    output_dir="out",
    learning_rate=5e-4,
    num_train_epochs=3,
    fp16=torch.cuda.is_available(),
)
trainer = Seq2SeqTrainer(model=model, args=args, train_dataset=train_set)
trainer.train()
"""
    },
    says={
        "AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "float16",
        "AutoModelForSeq2SeqLM.from_pretrained.name": "google/mt5-small",
        "Seq2SeqTrainingArguments.fp16": True,
    },
    places={
        "AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "train.py:6",
        "Seq2SeqTrainingArguments.fp16": "train.py:13",
    },
    causes=frozenset({"fp16-overflow-model-family", "double-fp16"}),
)

STYLES["dataclasses behind HfArgumentParser"] = Style(
    files={
        "train.py": """\
from dataclasses import dataclass, field
import torch
from transformers import AutoModelForSeq2SeqLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class ModelArguments:
    model_name: str = field(default="google/mt5-base", metadata={"help": "which"})
    half: bool = field(default=True)

@dataclass
class DataArguments:
    max_length: int = 512

def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    dtype = torch.float16 if model_args.half else torch.float32
    model = AutoModelForSeq2SeqLM.from_pretrained(model_args.model_name, torch_dtype=dtype)
    Trainer(model=model, args=training_args).train()

if __name__ == "__main__":
    main()
"""
    },
    says={
        "AutoModelForSeq2SeqLM.from_pretrained.name": "google/mt5-base",
        "AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "float16",
    },
    places={
        "AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "train.py:17",
        "AutoModelForSeq2SeqLM.from_pretrained.name": "train.py:7",
    },
    causes=frozenset({"pure-fp16-weights"}),
)

STYLES["argparse"] = Style(
    files={
        "train.py": """\
import argparse
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments

def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=str, default="google/mt5-small")
    parser.add_argument("--lr", type=float, default="5e-4")
    parser.add_argument("--no-half", dest="half", action="store_false")
    parser.add_argument("--scheduler", choices=["linear", "cosine"], default="cosine")
    group = parser.add_argument_group("length")
    group.add_argument("--max-steps", type=int, default=1000)
    return parser.parse_args()

def main(args):
    model = AutoModelForSeq2SeqLM.from_pretrained(args.model)
    training = TrainingArguments(
        "out", learning_rate=args.lr, fp16=args.half, lr_scheduler_type=args.scheduler, max_steps=args.max_steps
    )
    Trainer(model, training).train()

if __name__ == "__main__":
    args = parse_args()
    main(args)
"""
    },
    says={
        "TrainingArguments.learning_rate": 5e-4,
        "TrainingArguments.fp16": True,
        "TrainingArguments.lr_scheduler_type": "cosine",
        "TrainingArguments.max_steps": 1000,
        "AutoModelForSeq2SeqLM.from_pretrained.name": "google/mt5-small",
    },
    places={"TrainingArguments.fp16": "train.py:8", "TrainingArguments.learning_rate": "train.py:7"},
    causes=frozenset({"fp16-overflow-model-family"}),
)

STYLES["vars of the arguments"] = Style(
    files={
        "train.py": """\
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=50.0)
parser.add_argument("--weight_decay", type=float, default=0.01)
config = vars(parser.parse_args())
optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"], weight_decay=config.get("weight_decay", 0.0))
"""
    },
    says={"torch.optim.AdamW.lr": 50.0, "torch.optim.AdamW.weight_decay": 0.01},
    places={"torch.optim.AdamW.lr": "train.py:5"},
    causes=frozenset({"lr-too-high"}),
)

STYLES["a config class"] = Style(
    files={
        "train.py": """\
from dataclasses import dataclass, field
import torch

@dataclass
class OptimizerConfig:
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)

@dataclass
class Config:
    batch: int = 32
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    clip: float = 1.0

    @property
    def scaled_lr(self):
        return self.optimizer.lr * self.batch / 256

cfg = Config(batch=64)
cfg.clip = 0.5
optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.scaled_lr, betas=cfg.optimizer.betas)
torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
"""
    },
    says={
        "torch.optim.AdamW.lr": 1e-3 * 64 / 256,
        "torch.optim.AdamW.betas": [0.9, 0.95],
        "torch.nn.utils.clip_grad_norm_.max_norm": 0.5,
    },
    places={"torch.nn.utils.clip_grad_norm_.max_norm": "train.py:20"},
)

STYLES["OmegaConf with the file beside it"] = Style(
    files={
        "train.py": """\
import torch
from omegaconf import OmegaConf
from transformers import T5ForConditionalGeneration, Trainer, TrainingArguments

cfg = OmegaConf.merge(OmegaConf.load("conf.yaml"), OmegaConf.from_cli())
model = T5ForConditionalGeneration.from_pretrained(cfg.model.name)
trainer = Trainer(model, TrainingArguments("out", **cfg.training))
trainer.train()
""",
        "conf.yaml": """\
model:
  name: t5-base
base_lr: 3.0e-4
training:
  learning_rate: ${base_lr}
  fp16: true
""",
    },
    says={
        "TrainingArguments.fp16": True,
        "TrainingArguments.learning_rate": 3e-4,
        "T5ForConditionalGeneration.from_pretrained.name": "t5-base",
    },
    places={"TrainingArguments.fp16": "conf.yaml:6", "TrainingArguments.learning_rate": "conf.yaml:3"},
    causes=frozenset({"fp16-overflow-model-family"}),
)

STYLES["hydra with groups"] = Style(
    files={
        "train.py": """\
import hydra
import torch
from omegaconf import DictConfig

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    optimizer = hydra.utils.instantiate(cfg.optimizer, params=model.parameters())
    trainer = L.Trainer(**cfg.trainer)
    torch.manual_seed(cfg.seed)

if __name__ == "__main__":
    main()
""",
        "conf/config.yaml": "defaults:\n  - optimizer: adamw\n  - _self_\nseed: 7\ntrainer:\n  precision: 16-mixed\n",
        "conf/optimizer/adamw.yaml": "_target_: torch.optim.AdamW\nlr: 25.0\n",
    },
    says={"torch.optim.AdamW.lr": 25.0, "L.Trainer.precision": "16-mixed", "torch.manual_seed": 7},
    places={"torch.optim.AdamW.lr": "conf/optimizer/adamw.yaml:2", "L.Trainer.precision": "conf/config.yaml:6"},
    causes=frozenset({"lr-too-high"}),
)

STYLES["environment variables"] = Style(
    files={
        "train.py": """\
import os
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments

PRECISION = os.environ.get("PRECISION", "fp16")
LR = float(os.getenv("LR", "3e-4"))
ROWS = int(os.getenv("ROWS", 8)) * 2
model = AutoModelForSeq2SeqLM.from_pretrained(os.environ.get("MODEL") or "google/mt5-small")
args = TrainingArguments(
    "out",
    fp16=PRECISION == "fp16",
    bf16=PRECISION == "bf16",
    learning_rate=LR,
    per_device_train_batch_size=ROWS,
)
Trainer(model, args).train()
"""
    },
    says={
        "TrainingArguments.fp16": True,
        "TrainingArguments.bf16": False,
        "TrainingArguments.learning_rate": 3e-4,
        "TrainingArguments.per_device_train_batch_size": 16,
    },
    places={"TrainingArguments.fp16": "train.py:10", "TrainingArguments.learning_rate": "train.py:5"},
    causes=frozenset({"fp16-overflow-model-family"}),
)

STYLES["a helper with a default"] = Style(
    files={
        "train.py": """\
import torch
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments

def make_model(name="google/mt5-small", dtype=torch.float16):
    return AutoModelForSeq2SeqLM.from_pretrained(name, torch_dtype=dtype)

def training_arguments(lr, **more):
    defaults = dict(output_dir="out", num_train_epochs=3, fp16=True)
    defaults.update(more)
    return TrainingArguments(learning_rate=lr, **defaults)

trainer = Trainer(make_model(), training_arguments(1e-4, warmup_steps=100))
trainer.train()
"""
    },
    says={
        "AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "float16",
        "TrainingArguments.fp16": True,
        "TrainingArguments.learning_rate": 1e-4,
        "TrainingArguments.warmup_steps": 100,
    },
    places={
        "AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "train.py:4",
        "TrainingArguments.learning_rate": "train.py:12",
        "TrainingArguments.fp16": "train.py:8",
    },
    causes=frozenset({"fp16-overflow-model-family", "double-fp16"}),
)

STYLES["a helper that is told otherwise"] = Style(
    files={
        "train.py": """\
import torch
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments

def make_model(name="google/mt5-small", torch_dtype=torch.float16):
    return AutoModelForSeq2SeqLM.from_pretrained(name, torch_dtype=torch_dtype)

trainer = Trainer(make_model(torch_dtype=torch.float32), TrainingArguments("out", bf16=True, learning_rate=1e-4))
trainer.train()
"""
    },
    says={
        "AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "float32",
        "AutoModelForSeq2SeqLM.from_pretrained.name": "google/mt5-small",
    },
)

STYLES["settings of a module beside it"] = Style(
    files={
        "train.py": """\
import config
from settings import LR, DTYPE as dtype
from models.loading import load_model
from transformers import Trainer, TrainingArguments

model = load_model(config.MODEL, dtype)
args = TrainingArguments("out", learning_rate=LR, num_train_epochs=config.EPOCHS)
Trainer(model, args).train()
""",
        "config.py": 'MODEL = "google/mt5-large"\nEPOCHS = 4\nUNUSED_LR = -1\n',
        "settings.py": "import torch\n\nLR = 1e-5 * 4\nDTYPE = torch.float16\n",
        "models/__init__.py": "",
        "models/loading.py": """\
from transformers import AutoModelForSeq2SeqLM


def load_model(name, dtype):
    return AutoModelForSeq2SeqLM.from_pretrained(name, torch_dtype=dtype)
""",
    },
    says={
        "AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "float16",
        "AutoModelForSeq2SeqLM.from_pretrained.name": "google/mt5-large",
        "TrainingArguments.learning_rate": 1e-5 * 4,
        "TrainingArguments.num_train_epochs": 4,
    },
    places={
        "AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "settings.py:4",
        "TrainingArguments.learning_rate": "settings.py:3",
        "AutoModelForSeq2SeqLM.from_pretrained.name": "config.py:1",
    },
    causes=frozenset({"pure-fp16-weights"}),
)

STYLES["a module that builds the optimizer"] = Style(
    files={
        "train.py": """\
from helpers import build_optimizer, RATES
import models

model = models.Net()
optimizer = build_optimizer(model, name="adamw", lr=RATES["base"])
for batch in loader:
    optimizer.zero_grad()
    loss = model(batch)
    loss.backward()
    optimizer.step()
""",
        "helpers.py": """\
import torch

RATES = {"base": 10.0, "head": 1e-3}
OPTIMIZERS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def build_optimizer(model, name, lr):
    cls = OPTIMIZERS[name]
    return cls(model.parameters(), lr=lr)
""",
        "models.py": "import torch\n\n\nclass Net(torch.nn.Module):\n    pass\n",
    },
    says={"torch.optim.AdamW.lr": 10.0, "optimizer": "AdamW"},
    places={"torch.optim.AdamW.lr": "helpers.py:3"},
    causes=frozenset({"lr-too-high"}),
)

STYLES["branches on the device"] = Style(
    files={
        "train.py": """\
import torch

device = torch.device("cuda:0" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
use_cuda = device.type == "cuda"
if use_cuda:
    dtype = torch.float16
    rows = 32
else:
    dtype = torch.float32
    rows = 4
scaler = torch.amp.GradScaler(enabled=use_cuda)
loader = DataLoader(data, batch_size=rows, shuffle=True, pin_memory=use_cuda)
with torch.autocast(device_type=device.type, dtype=dtype, enabled="cuda" in str(device)):
    loss = model(x)
"""
    },
    says={
        "torch.autocast.dtype": "float16",
        "torch.autocast.enabled": True,
        "torch.autocast.device_type": "cuda",
        "torch.amp.GradScaler": True,
        "DataLoader.batch_size": 32,
    },
    places={"torch.autocast.dtype": "train.py:6", "DataLoader.batch_size": "train.py:7"},
)

STYLES["dicts that are put together"] = Style(
    files={
        "train.py": """\
import torch
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments

base = dict(learning_rate=1e-5, num_train_epochs=3)
more = {**base, "learning_rate": 3e-4}
more.update({"warmup_ratio": 0.1}, weight_decay=0.01)
more.setdefault("num_train_epochs", 99)
more |= {"max_grad_norm": 0.5}
model_kwargs = {}
if torch.cuda.is_available():
    model_kwargs["torch_dtype"] = torch.float16
model_kwargs.pop("device_map", None)
model = AutoModelForSeq2SeqLM.from_pretrained("google/mt5-small", **model_kwargs)
Trainer(model, TrainingArguments("out", **more)).train()
"""
    },
    says={
        "TrainingArguments.learning_rate": 3e-4,
        "TrainingArguments.warmup_ratio": 0.1,
        "TrainingArguments.weight_decay": 0.01,
        "TrainingArguments.num_train_epochs": 3,
        "TrainingArguments.max_grad_norm": 0.5,
        "AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "float16",
    },
    places={"AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "train.py:11"},
    causes=frozenset({"pure-fp16-weights"}),
)

STYLES["functools.partial"] = Style(
    files={
        "train.py": """\
from functools import partial
import torch

make = partial(torch.optim.AdamW, lr=40.0, betas=(0.9, 0.98))
optimizer = make(model.parameters(), weight_decay=0.1)
"""
    },
    says={"torch.optim.AdamW.lr": 40.0, "torch.optim.AdamW.weight_decay": 0.1, "torch.optim.AdamW.betas": [0.9, 0.98]},
    places={"torch.optim.AdamW.lr": "train.py:4", "torch.optim.AdamW.weight_decay": "train.py:5"},
    causes=frozenset({"lr-too-high"}),
)

STYLES["a trainer class of one's own"] = Style(
    files={
        "train.py": """\
import torch

class Runner:
    ACCUMULATE = 4

    def __init__(self, model, lr=1e-3, clip=1.0):
        self.model = model
        self.lr = lr
        self.clip = clip
        self.optimizer = self.make_optimizer()

    def make_optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=self.lr * self.ACCUMULATE)

    def step(self, loss):
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()

runner = Runner(model, lr=0.05)
"""
    },
    says={"torch.optim.SGD.lr": 0.2, "torch.nn.utils.clip_grad_norm_.max_norm": 1.0},
    places={"torch.nn.utils.clip_grad_norm_.max_norm": "train.py:6"},
)

STYLES["computed constants"] = Style(
    files={
        "train.py": """\
import math
import torch
from transformers import TrainingArguments, get_cosine_schedule_with_warmup

BATCH = 256
STEPS = int(1e4)
LR = 5e-5 * math.sqrt(BATCH / 64)
SIZE = "base"
NAME = f"google/mt5-{SIZE}"
optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
schedule = get_cosine_schedule_with_warmup(optimizer, round(0.06 * STEPS), STEPS)
args = TrainingArguments("out", per_device_train_batch_size=BATCH // 2, max_steps=max(STEPS, 500), run_name=NAME)
"""
    },
    says={
        "torch.optim.AdamW.lr": 1e-4,
        "get_cosine_schedule_with_warmup.num_warmup_steps": 600,
        "get_cosine_schedule_with_warmup.num_training_steps": 10_000,
        "TrainingArguments.per_device_train_batch_size": 128,
        "TrainingArguments.max_steps": 10_000,
        "TrainingArguments.run_name": "google/mt5-base",
    },
    places={"torch.optim.AdamW.lr": "train.py:7"},
)

STYLES["Lightning with saved hyperparameters"] = Style(
    files={
        "train.py": """\
import lightning as L
import torch

class Lit(L.LightningModule):
    def __init__(self, lr: float = 30.0, weight_decay: float = 0.01):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, 2)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=self.hparams["weight_decay"])

trainer = L.Trainer(precision="16-mixed" if torch.cuda.is_available() else 32, max_epochs=5)
trainer.fit(Lit(weight_decay=0.1), loader)
"""
    },
    says={
        "torch.optim.AdamW.lr": 30.0,
        "torch.optim.AdamW.weight_decay": 0.1,
        "lightning.Trainer.precision": "16-mixed",
    },
    places={"torch.optim.AdamW.lr": "train.py:5", "torch.optim.AdamW.weight_decay": "train.py:14"},
    causes=frozenset({"lr-too-high"}),
)

STYLES["accelerate and a click command"] = Style(
    files={
        "train.py": """\
import click
from accelerate import Accelerator
from transformers import AutoModelForSeq2SeqLM

@click.command()
@click.option("--mp", default="fp16")
@click.option("--lr", type=float, default=1e-4)
def main(mp, lr):
    accelerator = Accelerator(mixed_precision=mp, gradient_accumulation_steps=2)
    model = AutoModelForSeq2SeqLM.from_pretrained("google/mt5-small")
    optimizer = AdamW(model.parameters(), lr=lr)
    for batch in accelerator.prepare(loader):
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()

if __name__ == "__main__":
    main()
"""
    },
    says={"Accelerator.mixed_precision": "fp16", "AdamW.lr": 1e-4},
    places={"Accelerator.mixed_precision": "train.py:6"},
    causes=frozenset({"fp16-overflow-model-family"}),
)

STYLES["nested choices"] = Style(
    files={
        "train.py": """\
import torch
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments

SIZE = "large"
SETTINGS = {"small": (64, 1e-3), "large": (8, 1e-4)}
rows, rate = SETTINGS[SIZE]
dtype = torch.float32 if not torch.cuda.is_available() else torch.bfloat16 if SIZE == "small" else torch.float16
kwargs = dict(torch_dtype=dtype) if dtype is not None else {}
model = AutoModelForSeq2SeqLM.from_pretrained(f"google/mt5-{SIZE}", **kwargs)
Trainer(model, TrainingArguments("out", learning_rate=rate, per_device_train_batch_size=rows)).train()
"""
    },
    says={
        "AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "float16",
        "AutoModelForSeq2SeqLM.from_pretrained.name": "google/mt5-large",
        "TrainingArguments.learning_rate": 1e-4,
        "TrainingArguments.per_device_train_batch_size": 8,
    },
    places={"AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "train.py:7"},
    causes=frozenset({"pure-fp16-weights"}),
)

STYLES["a YAML file and open"] = Style(
    files={
        "train.py": """\
import json
from pathlib import Path
import torch
import yaml

HERE = Path(__file__).parent
with open(HERE / "train.yaml") as file:
    config = yaml.safe_load(file)
shape = json.loads((HERE / "shape.json").read_text())
optimizer = torch.optim.AdamW(model.parameters(), lr=float(config["optimizer"]["lr"]))
layer = torch.nn.LayerNorm(shape["width"], eps=shape.get("eps", 1e-5))
""",
        "train.yaml": "optimizer:\n  lr: 1e2\n",
        "shape.json": '{"width": 512,\n "eps": 1e-6}\n',
    },
    says={"torch.optim.AdamW.lr": 100.0, "torch.nn.LayerNorm.eps": 1e-6, "torch.nn.LayerNorm.normalized_shape": 512},
    places={"torch.optim.AdamW.lr": "train.yaml:2", "torch.nn.LayerNorm.eps": "shape.json:2"},
    causes=frozenset({"lr-too-high"}),
)

STYLES["a namespace of settings"] = Style(
    files={
        "train.py": """\
from types import SimpleNamespace
import torch

class CFG:
    lr = 20.0
    apex = False
    batch_scheduler = True

cfg = SimpleNamespace(**{"warmup": 100, "epochs": 3})
optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr)
schedule = get_linear_schedule_with_warmup(optimizer, cfg.warmup, cfg.epochs * 1000)
scaler = torch.cuda.amp.GradScaler(enabled=CFG.apex)
"""
    },
    says={
        "torch.optim.AdamW.lr": 20.0,
        "get_linear_schedule_with_warmup.num_warmup_steps": 100,
        "get_linear_schedule_with_warmup.num_training_steps": 3000,
        "torch.cuda.amp.GradScaler": False,
    },
    places={"torch.optim.AdamW.lr": "train.py:5"},
    causes=frozenset({"lr-too-high"}),
)

STYLES["entry by fire"] = Style(
    files={
        "train.py": """\
import fire
import torch
from transformers import T5ForConditionalGeneration, Trainer, TrainingArguments

def train(base_model: str = "google/t5-v1_1-base", half: bool = True, micro: int = 4, batch: int = 128):
    model = T5ForConditionalGeneration.from_pretrained(base_model)
    steps = batch // micro
    args = TrainingArguments("out", fp16=half, gradient_accumulation_steps=steps, learning_rate=1e-4)
    Trainer(model, args).train()

if __name__ == "__main__":
    fire.Fire(train)
"""
    },
    says={"TrainingArguments.fp16": True, "TrainingArguments.gradient_accumulation_steps": 32},
    places={"TrainingArguments.fp16": "train.py:5"},
    causes=frozenset({"fp16-overflow-model-family"}),
)

STYLES["a config node of one's own"] = Style(
    files={
        "train.py": """\
import torch

class Node:
    def __init__(self, **given):
        self.__dict__.update(given)

class Net(torch.nn.Module):
    def configure(self, config):
        return torch.optim.AdamW(self.parameters(), lr=config.lr, betas=config.betas)

class Runner:
    @staticmethod
    def defaults():
        return Node(lr=1e-3, betas=(0.9, 0.95))

    def __init__(self, config, net):
        self.config, self.net = config, torch.compile(net.to("cuda"))

    def run(self):
        return self.net.configure(self.config)

config = Runner.defaults()
config.lr = 60.0
Runner(config, Net()).run()
"""
    },
    says={"torch.optim.AdamW.lr": 60.0, "torch.optim.AdamW.betas": [0.9, 0.95]},
    places={"torch.optim.AdamW.lr": "train.py:23", "torch.optim.AdamW.betas": "train.py:14"},
    causes=frozenset({"lr-too-high"}),
)

STYLES["yacs and a file of overrides"] = Style(
    files={
        "train.py": """\
import torch
from config import get_config

cfg = get_config("tiny.yaml")
optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.TRAIN.LR, eps=cfg.TRAIN.EPS)
""",
        "config.py": """\
from yacs.config import CfgNode as CN

_C = CN()
_C.TRAIN = CN()
_C.TRAIN.LR = 1e-3
_C.TRAIN.EPS = 1e-8


def get_config(path):
    config = _C.clone()
    config.merge_from_file(path)
    config.freeze()
    return config
""",
        "tiny.yaml": "TRAIN:\n  LR: 70.0\n",
    },
    says={"torch.optim.AdamW.lr": 70.0, "torch.optim.AdamW.eps": 1e-8},
    places={"torch.optim.AdamW.lr": "tiny.yaml:2", "torch.optim.AdamW.eps": "config.py:6"},
    causes=frozenset({"lr-too-high"}),
)

STYLES["a parser filled from a dict"] = Style(
    files={
        "train.py": """\
import argparse
import torch

def create_parser():
    defaults = dict(lr=80.0, weight_decay=0.0, batch=8, steps=100, seed=1, log=10, eps=1e-8)
    parser = argparse.ArgumentParser()
    for key, value in defaults.items():
        kind = str if value is None else type(value)
        parser.add_argument(f"--{key}", default=value, type=kind)
    return parser

def picked(args, names):
    return {name: getattr(args, name) for name in names}

def main():
    args = create_parser().parse_args()
    optimizer = torch.optim.AdamW(model.parameters(), **picked(args, ["lr", "weight_decay"]))

if __name__ == "__main__":
    main()
"""
    },
    says={"torch.optim.AdamW.lr": 80.0, "torch.optim.AdamW.weight_decay": 0.0},
    places={"torch.optim.AdamW.lr": "train.py:5"},
    causes=frozenset({"lr-too-high"}),
)

STYLES["an argument that must be given"] = Style(
    files={
        "train.py": """\
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--train-data", default=None)
parser.add_argument("--lr", type=float, default=None)
parser.add_argument("--do-train", action="store_true")
args = parser.parse_args()
if args.train_data is None and args.do_train:
    raise ValueError("no data")
if args.lr is None:
    args.lr = 90.0
if args.train_data and args.do_train:
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
"""
    },
    says={"torch.optim.AdamW.lr": 90.0},
    places={"torch.optim.AdamW.lr": "train.py:12"},
    causes=frozenset({"lr-too-high"}),
)

STYLES["objects of an imported module"] = Style(
    files={
        "train.py": """\
from arguments import used
from transformers import AutoModelForSeq2SeqLM, Trainer

Trainer(AutoModelForSeq2SeqLM.from_pretrained("google/mt5-small"), used).train()
""",
        "arguments.py": """\
from transformers import TrainingArguments

used = TrainingArguments("out", fp16=True, learning_rate=1e-4)
unused = TrainingArguments("out", bf16=True, learning_rate=50.0)
""",
    },
    says={"TrainingArguments.fp16": True, "TrainingArguments.learning_rate": 1e-4},
    places={"TrainingArguments.fp16": "arguments.py:3"},
    causes=frozenset({"fp16-overflow-model-family"}),
)
