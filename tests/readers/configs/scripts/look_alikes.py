"""Scripts that look like faulty ones and work: `stayfinite check` says nothing of them."""

from readers.configs.scripts.styles import Style

LOOK_ALIKES: dict[str, Style] = {}

_TRAINS = """\
import argparse, os
import torch
from transformers import AutoModelForSeq2SeqLM, Trainer, TrainingArguments

"""

LOOK_ALIKES["fp16 switched off"] = Style(
    files={
        "train.py": _TRAINS
        + """\
kwargs = {"fp16": False}
model = AutoModelForSeq2SeqLM.from_pretrained("google/mt5-small", **{"torch_dtype": torch.float32})
Trainer(model, TrainingArguments("out", learning_rate=1e-4, **kwargs)).train()
"""
    },
    says={"TrainingArguments.fp16": False, "AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "float32"},
)

LOOK_ALIKES["half only on demand"] = Style(
    files={
        "train.py": _TRAINS
        + """\
parser = argparse.ArgumentParser()
parser.add_argument("--half", action="store_true")
args = parser.parse_args()
dtype = torch.float16 if args.half else torch.float32
model = AutoModelForSeq2SeqLM.from_pretrained("google/mt5-small", torch_dtype=dtype)
if args.half:
    model.half()
Trainer(model, TrainingArguments("out", learning_rate=1e-4, fp16=args.half)).train()
"""
    },
    says={"AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "float32", "TrainingArguments.fp16": False},
)

LOOK_ALIKES["whatever the card computes in"] = Style(
    files={
        "train.py": _TRAINS
        + """\
bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
dtype = torch.bfloat16 if bf16 else torch.float16
model = AutoModelForSeq2SeqLM.from_pretrained("google/mt5-small")
Trainer(model, TrainingArguments("out", learning_rate=1e-4, fp16=not bf16, bf16=bf16)).train()
with torch.autocast("cuda", dtype=dtype):
    pass
"""
    },
    says={"TrainingArguments.fp16": "not bf16", "torch.autocast.dtype": "dtype"},
)

LOOK_ALIKES["a choice that nobody knows"] = Style(
    files={
        "train.py": _TRAINS
        + """\
settings = load_settings()
load_kwargs = {}
if settings["half"]:
    load_kwargs["torch_dtype"] = torch.float16
    precision = {"fp16": True}
else:
    precision = {"fp16": False}
model = AutoModelForSeq2SeqLM.from_pretrained("google/mt5-small", **load_kwargs)
Trainer(model, TrainingArguments("out", learning_rate=settings.get("lr", 50.0), **precision)).train()
"""
    },
    says={"TrainingArguments.learning_rate": 'settings.get("lr", 50.0)'},
)

LOOK_ALIKES["only inference in fp16"] = Style(
    files={
        "generate.py": """\
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

device = "cuda" if torch.cuda.is_available() else "cpu"
load_kwargs = {"torch_dtype": torch.float16 if device == "cuda" else torch.float32}

def main():
    model = AutoModelForSeq2SeqLM.from_pretrained("google/mt5-small", **load_kwargs).to(device).eval()
    with torch.no_grad():
        print(model.generate(max_new_tokens=20))

if __name__ == "__main__":
    main()
"""
    },
    says={"AutoModelForSeq2SeqLM.from_pretrained.torch_dtype": "float16"},
)

LOOK_ALIKES["a teacher in fp16"] = Style(
    files={
        "train.py": _TRAINS
        + """\
HALF = dict(torch_dtype=torch.float16)

def load(name, **kwargs):
    return AutoModelForSeq2SeqLM.from_pretrained(name, **kwargs)

class Distiller(Trainer):
    def __init__(self, *args, teacher=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher

teacher = load("google/mt5-xl", **HALF).eval()
student = load("google/mt5-small")
Distiller(student, TrainingArguments("out", bf16=True, learning_rate=1e-4), teacher=teacher).train()
"""
    },
    says={"TrainingArguments.bf16": True},
)

LOOK_ALIKES["the other branch"] = Style(
    files={
        "train.py": _TRAINS
        + """\
PRECISION = "bf16"

def to_half(model):
    model.half()
    return model

match PRECISION:
    case "fp16":
        flags = {"fp16": True, "learning_rate": 50.0}
    case "bf16" | "auto":
        flags = {"bf16": True, "learning_rate": 1e-4}
    case _:
        flags = {}
model = AutoModelForSeq2SeqLM.from_pretrained("google/mt5-small")
if PRECISION == "fp16":
    model = to_half(model)
elif PRECISION not in ("bf16", "fp32"):
    raise SystemExit("unknown precision")
Trainer(model, TrainingArguments("out", **flags)).train()
"""
    },
    says={"TrainingArguments.bf16": True, "TrainingArguments.learning_rate": 1e-4},
)

LOOK_ALIKES["overwritten before it is used"] = Style(
    files={
        "train.py": _TRAINS
        + """\
class Config:
    lr = 50.0
    fp16 = True

class Mine(Config):
    lr = 1e-4
    fp16 = False

def options(lr=50.0, fp16=True):
    return dict(learning_rate=lr, fp16=fp16)

cfg = Mine()
flags = options(lr=cfg.lr, fp16=True)
flags["fp16"] = cfg.fp16
Trainer(AutoModelForSeq2SeqLM.from_pretrained("google/mt5-small"), TrainingArguments("out", **flags)).train()
"""
    },
    says={"TrainingArguments.learning_rate": 1e-4, "TrainingArguments.fp16": False},
)

LOOK_ALIKES["a sweep of rates"] = Style(
    files={
        "train.py": """\
import torch

def train(lr, epochs=3):
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for epoch in range(epochs):
        lr = lr * 0.5
        for group in optimizer.param_groups:
            group["lr"] = lr
    return model

for lr in read_grid():
    train(lr)
"""
    },
    says={"torch.optim.AdamW.lr": "lr"},
)

LOOK_ALIKES["a schedule that sets the rate itself"] = Style(
    files={
        "train.py": """\
import torch
from noam import Noam

optimizer = Noam(model.parameters(), size=512)
""",
        "noam.py": """\
import torch


class Noam:
    def __init__(self, params, size, factor=2.0, warm_step=4000):
        self.optimizer = torch.optim.Adam(params, lr=0, betas=(0.9, 0.98), eps=1e-9)
        self._step, self.size, self.factor, self.warm_step = 0, size, factor, warm_step

    def step(self):
        self._step += 1
        rate = self.factor * self.size ** -0.5 * min(self._step ** -0.5, self._step * self.warm_step ** -1.5)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
""",
    },
    says={"torch.optim.Adam.lr": 0},
)

LOOK_ALIKES["a class with a library's name"] = Style(
    files={
        "train.py": """\
import torch

class StepLR:
    def __init__(self, optimizer, base: float, epochs: int):
        self.optimizer, self.base = optimizer, base

optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = StepLR(optimizer, 0.1, 200)
"""
    },
    says={"torch.optim.SGD.lr": 0.1},
)

LOOK_ALIKES["rates of other learners"] = Style(
    files={
        "train.py": """\
import torch
from xgboost import XGBClassifier

baseline = XGBClassifier(learning_rate=50.0, n_estimators=1000)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
"""
    },
    says={"torch.optim.Adam.lr": 1e-3},
)
