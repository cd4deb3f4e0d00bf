"""Python scripts, read without running them."""

import time

import pytest

from readers.configs.config_files import read, told
from stayfinite.core.settings import Expression

LINES = {
    "TrainingArguments(output_dir='x', fp16=True, learning_rate=2e-5)": {
        "TrainingArguments.output_dir": "x",
        "TrainingArguments.fp16": True,
        "TrainingArguments.learning_rate": 2e-5,
    },
    "Seq2SeqTrainingArguments(bf16=False, lr_scheduler_type=SchedulerType.COSINE)": {
        "Seq2SeqTrainingArguments.bf16": False,
        "Seq2SeqTrainingArguments.lr_scheduler_type": "cosine",
    },
    "SFTConfig(max_length=64, assistant_only_loss=True)": {
        "SFTConfig.max_length": 64,
        "SFTConfig.assistant_only_loss": True,
    },
    "LoraConfig(r=16, target_modules=['q_proj', 'v_proj'])": {
        "LoraConfig.r": 16,
        "LoraConfig.target_modules": ["q_proj", "v_proj"],
    },
    "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float16)": {
        "BitsAndBytesConfig.load_in_4bit": True,
        "BitsAndBytesConfig.bnb_4bit_compute_dtype": "float16",
    },
    "model = AutoModelForSeq2SeqLM.from_pretrained('google/mt5-small', dtype=torch.half)": {
        "AutoModelForSeq2SeqLM.from_pretrained.name": "google/mt5-small",
        "AutoModelForSeq2SeqLM.from_pretrained.dtype": "float16",
    },
    "PeftModel.from_pretrained(model, 'tloen/alpaca-lora-7b')": {
        "PeftModel.from_pretrained.name": "tloen/alpaca-lora-7b"
    },
    "trainer = pl.Trainer(precision='16-mixed', gradient_clip_val=1.0)": {
        "pl.Trainer.precision": "16-mixed",
        "pl.Trainer.gradient_clip_val": 1.0,
    },
    "accelerator = Accelerator(mixed_precision='fp16')": {"Accelerator.mixed_precision": "fp16"},
    "opt = torch.optim.AdamW(model.parameters(), lr=3 * 1e-4, eps=1e-8)": {
        "torch.optim.AdamW.lr": 3 * 1e-4,
        "torch.optim.AdamW.eps": 1e-8,
        "optimizer": "AdamW",
    },
    "opt = SGD(params, 0.1)": {"SGD.lr": 0.1, "optimizer": "SGD"},
    "scaler = GradScaler()": {"GradScaler": True},
    "scaler = torch.cuda.amp.GradScaler(enabled=False)": {"torch.cuda.amp.GradScaler": False},
    "scaler = torch.amp.GradScaler('cuda', init_scale=2.0**10)": {
        "torch.amp.GradScaler": True,
        "torch.amp.GradScaler.init_scale": 1024.0,
    },
    "with autocast(dtype=torch.bfloat16):\n    pass": {"autocast": True, "autocast.dtype": "bfloat16"},
    "with torch.autocast('cuda', torch.float16):\n    pass": {
        "torch.autocast": True,
        "torch.autocast.device_type": "cuda",
        "torch.autocast.dtype": "float16",
    },
    "model.half()": {"model.half": True},
    "model = Net().cuda().half()": {"Net.cuda.half": True},
    "self.model.to(torch.float16)": {"self.model.to.dtype": "float16"},
    "x.to(device, dtype=torch.bfloat16)": {"x.to.dtype": "bfloat16"},
    "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)": {"torch.nn.utils.clip_grad_norm_.max_norm": 1.0},
    "model.gradient_checkpointing_enable()": {"model.gradient_checkpointing_enable": True},
    "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})": {
        "model.gradient_checkpointing_enable": True,
        "model.gradient_checkpointing_enable.gradient_checkpointing_kwargs.use_reentrant": False,
    },
    "model = DDP(model, find_unused_parameters=True)": {"DDP": True, "DDP.find_unused_parameters": True},
    "loss_fn = nn.BCELoss()": {"nn.BCELoss": True},
    "nn.CrossEntropyLoss(ignore_index=-100, label_smoothing=0.1)": {
        "nn.CrossEntropyLoss.ignore_index": -100,
        "nn.CrossEntropyLoss.label_smoothing": 0.1,
    },
    "model.base.requires_grad_(False)": {"model.base.requires_grad_": False},
    "for p in model.parameters():\n    p.requires_grad = False": {"p.requires_grad": False},
    "torch.manual_seed(42)": {"torch.manual_seed": 42},
    "sched = get_linear_schedule_with_warmup(opt, 0, 1000)": {
        "get_linear_schedule_with_warmup.num_warmup_steps": 0,
        "get_linear_schedule_with_warmup.num_training_steps": 1000,
    },
    "enc = tokenizer(text, truncation=True, max_length=512)": {
        "tokenizer.truncation": True,
        "tokenizer.max_length": 512,
    },
    "amp.initialize(model, opt, opt_level='O2')": {"amp.initialize.opt_level": "O2"},
    "LR = 1e-4\nopt = Adam(p, lr=LR)": {"LR": 1e-4, "Adam.lr": 1e-4},
    "FP16, BF16 = True, False\nTrainingArguments(fp16=FP16, bf16=BF16)": {
        "TrainingArguments.fp16": True,
        "TrainingArguments.bf16": False,
    },
    "config = {'lr': 1e-4, 'opt': {'eps': 1e-8}}": {"config.lr": 1e-4, "config.opt.eps": 1e-8},
    "config = dict(lr=1e-4)\nrun = wandb.init(config=config)": {"config.lr": 1e-4, "wandb.init.config.lr": 1e-4},
    "kw = dict(fp16=True)\nTrainingArguments('out', **kw)": {"TrainingArguments.fp16": True},
    "cfg = {'lr': 0.1}\nAdam(p, lr=cfg['lr'])": {"Adam.lr": 0.1},
    "d = 'float16'\nt = {'float16': torch.float16, 'x': 1}[d]\nwith torch.autocast('cuda', dtype=t):\n    pass": {
        "torch.autocast.dtype": "float16"
    },
    "name = 'float16'\nBitsAndBytesConfig(bnb_4bit_compute_dtype=getattr(torch, name))": {
        "BitsAndBytesConfig.bnb_4bit_compute_dtype": "float16"
    },
    "import torch.nn.functional as F\nfrom a import autocast as ac\nac()\nF.cross_entropy(a, b, reduction='sum')": {
        "autocast": True,
        "torch.nn.functional.cross_entropy.reduction": "sum",
    },
    "cfg.SOLVER.BASE_LR = 0.02\nconfig['fp16'] = True": {"cfg.SOLVER.BASE_LR": 0.02, "config.fp16": True},
    "os.environ['CUDA_LAUNCH_BLOCKING'] = '1'": {"os.environ.CUDA_LAUNCH_BLOCKING": "1"},
    "os.system('torchrun --nproc_per_node 4 t.py --no-fp16')": {"--nproc_per_node": 4, "--fp16": False},
    "args = parser.parse_args(['--fp16', '--lr', '1e-4', '--name', 'a b'])": {
        "--fp16": True,
        "--lr": 1e-4,
        "--name": "a b",
    },
    "optimizer = dict(type='SGD', lr=0.02)\nmodel = dict(backbone=dict(type='R', norm_cfg=dict(requires_grad=True)))": {
        "optimizer.type": "SGD",
        "optimizer.lr": 0.02,
        "model.backbone.norm_cfg.requires_grad": True,
    },
    "learning_rate = 6e-4\nmax_iters = 600000\nbias = False\ndtype = 'float16'": {
        "learning_rate": 6e-4,
        "max_iters": 600000,
        "bias": False,
        "dtype": "float16",
    },
    "optimizer = L(torch.optim.AdamW)(lr=1e-4)": {"torch.optim.AdamW.lr": 1e-4},
    "x = 2 ** 3 // 3 - 1 % 5 + -4": {"x": -3},
    "s = 'a' 'b' + 'c'": {"s": "abc"},
    "def main():\n    lr = 1e-3\n    if __name__:\n        Adam(p, lr=lr)": {"Adam.lr": 1e-3},
    "y = 1e-4 if torch.cuda.is_available() else 1e-4\nAdam(p, lr=y)": {"Adam.lr": 1e-4},
    "if big:\n    lr = 1\nAdam(p, lr=1e-3)": {"Adam.lr": 1e-3},
}


@pytest.mark.parametrize("code", LINES)
def test_a_line_of_code_says_what_it_does(tmp_path, code):
    found = told(read(tmp_path, "train.py", code))
    assert {name: found.get(name, "(missing)") for name in LINES[code]} == LINES[code]


UNKNOWN = {
    "TrainingArguments(run_name=f'a{x}')": ("TrainingArguments.run_name", "f'a{x}'"),
    "TrainingArguments(fp16=not torch.cuda.is_bf16_supported())": (
        "TrainingArguments.fp16",
        "not torch.cuda.is_bf16_supported()",
    ),
    "if a:\n    lr = 1\nelse:\n    lr = 2\nAdam(p, lr=lr)": ("Adam.lr", "lr"),
    "lr = 1\nfor lr in grid:\n    Adam(p, lr=lr)": ("Adam.lr", "lr"),
    "lr = 1\ndef f(lr):\n    Adam(p, lr=lr)": ("Adam.lr", "lr"),
    "lr = lr + lr\nAdam(p, lr=lr)": ("Adam.lr", "lr"),
    "Adam(p, lr=1 / 0)": ("Adam.lr", "1 / 0"),
    "Adam(p, lr=9 ** 9 ** 9)": ("Adam.lr", "9 ** 9 ** 9"),
    "Adam(p, lr=(\n   a\n   + b))": ("Adam.lr", "a + b"),
    "Adam(p, lr=a[0])": ("Adam.lr", "a[0]"),
}


@pytest.mark.parametrize("code", UNKNOWN)
def test_what_only_running_would_tell_is_kept_as_written(tmp_path, code):
    name, source = UNKNOWN[code]
    value = told(read(tmp_path, "train.py", code))[name]
    assert isinstance(value, Expression)
    assert value == source


DEFAULTS = """
import argparse, click
from dataclasses import dataclass, field
parser = argparse.ArgumentParser()
parser.add_argument("-l", "--learning-rate", type=float, default=3e-4)
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--no-amp", dest="amp", action="store_false")
parser.add_argument("data")
flags.DEFINE_integer("batch", 32, "rows")

@dataclass
class Config:
    eps: float = 1e-8
    betas: tuple = (0.9, 0.95)
    names: list = field(default_factory=lambda: ["a"])
    clip: float = field(default=1.0, metadata={"help": "norm"})
    need: int

class Plain:
    warmup = 100

def train(base_model: str = "llama", lora_r: int = 8, *, group: bool = False):
    args = parser.parse_args()
    opt = AdamW(params, lr=args.learning_rate, eps=config.eps)
    TrainingArguments(fp16=args.fp16, warmup_steps=Plain.warmup)
    LoraConfig(r=lora_r)

@click.option("--seed", default=7)
def main(seed):
    pass
"""


def test_defaults_are_settings_of_their_own_kind_also_where_they_are_used(tmp_path):
    settings = read(tmp_path, "train.py", DEFAULTS)
    defaults = {setting.name: setting.value for setting in settings if setting.kind == "default"}
    expected = {
        "--learning-rate": 3e-4,
        "--fp16": False,
        "--no-amp": True,
        "--batch": 32,
        "Config.eps": 1e-8,
        "Config.betas": [0.9, 0.95],
        "Config.names": ["a"],
        "Config.clip": 1.0,
        "train.base_model": "llama",
        "train.lora_r": 8,
        "train.group": False,
        "AdamW.lr": 3e-4,
        "AdamW.eps": 1e-8,
        "TrainingArguments.fp16": False,
        "LoraConfig.r": 8,
        "--seed": 7,
    }
    assert {name: defaults.get(name, "(missing)") for name in expected} == expected
    assert settings.find("Plain.warmup").kind == "script"


def test_an_explicit_value_stands_before_a_default(tmp_path):
    settings = read(tmp_path, "train.py", "p.add_argument('--lr', default=0.1)\nargs = p.parse_args(['--lr', '0.2'])\n")
    assert settings.value("lr") == 0.2


LOSS = """
logits = model(x)
probs = logits.softmax(-1)
total_loss = F.nll_loss(probs.log(), y)
dist = torch.sqrt(d2)
running += loss.item()
loss = torch.tensor(loss, requires_grad=True)
w = layer.weight.data
z = x ** y
loss.backward()
name = "plain"
with torch.no_grad():
    pass
"""


def test_the_lines_in_which_the_loss_comes_about_are_notes_with_their_places(tmp_path):
    notes = read(tmp_path, "train.py", LOSS).notes
    assert [text for _, text in notes] == [
        "probs = logits.softmax(-1)",
        "total_loss = F.nll_loss(probs.log(), y)",
        "dist = torch.sqrt(d2)",
        "running += loss.item()",
        "loss = torch.tensor(loss, requires_grad=True)",
        "w = layer.weight.data",
        "z = x ** y",
        "loss.backward()",
        "with torch.no_grad()",
    ]
    assert notes[0][0] == f"{tmp_path}/train.py:3"


def test_settings_carry_the_line_of_the_argument(tmp_path):
    settings = read(tmp_path, "train.py", "\nargs = TrainingArguments(\n    output_dir='x',\n    fp16=True,\n)\n")
    assert settings.find("fp16").where == f"{tmp_path}/train.py:4"


HALVES = {
    "a call that was cut off": "x = 1\nargs = TrainingArguments(\n    fp16=True,\n    learning_rate=2e-5,\n    outp",
    "a line of Python 2": "import torch\nprint 'hello'\nargs = TrainingArguments(fp16=True, learning_rate=2e-5)\n",
    "a shell line": "!pip install x\nargs = TrainingArguments(fp16=True, learning_rate=2e-5)\n",
    "a conflict mark": "<<<<<<< HEAD\nargs = TrainingArguments(fp16=True, learning_rate=2e-5)\n",
}


@pytest.mark.parametrize("what", HALVES)
def test_a_script_that_does_not_parse_is_read_as_far_as_it_goes(tmp_path, what):
    settings = read(tmp_path, "train.py", HALVES[what])
    assert (settings.value("fp16"), settings.value("learning_rate")) == (True, 2e-5)


def test_a_script_is_never_run(tmp_path):
    mark = tmp_path / "ran"
    read(
        tmp_path,
        "train.py",
        f"open({str(mark)!r}, 'w')\n__import__('os').system('touch {mark}')\nx = [open({str(mark)!r}, 'w')]\n",
    )
    assert not mark.exists()


def test_a_long_script_takes_milliseconds(tmp_path):
    block = "def f{0}(a=1):\n    x = nn.Linear(10, a)\n    loss = torch.log(x).mean() + {0}\n    loss.backward()\n"
    text = "".join(block.format(number) for number in range(200))
    read(tmp_path, "train.py", text)
    began = time.process_time()
    read(tmp_path, "train.py", text)
    assert time.process_time() - began < 0.5
