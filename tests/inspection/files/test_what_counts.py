"""Of all that a script holds, the rate, the clipping and the dtype that its optimizer or trainer gets are judged."""

from pathlib import Path

import pytest

from stayfinite.inspection.files.inspecting import inspect_files


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(text: str, here: Path) -> list[tuple[str, str]]:
    """Cause and place of every finding."""
    (here / "train.py").write_text(text)
    return [(finding.cause, finding.where) for finding in inspect_files(["train.py"]).findings]


SEVERAL_RATES = """
import torch
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
learning_rate = {other}
def main(learning_rate=None, batch_size=8):
    if learning_rate is None:
        learning_rate = {rate} * batch_size
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
    args = TrainingArguments("out", learning_rate=learning_rate, max_grad_norm={clip})
    Trainer(model=model, args=args, train_dataset=data).train()
main()
"""
OVERRIDDEN = """
import torch
max_grad_norm = {other_clip}
def fit(model, lr={default}):
    optimizer = torch.optim.{optimizer}(model.parameters(), lr=lr)
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), {clip})
        optimizer.step()
fit(net, lr={given})
"""
TWO_OPTIMIZERS = """
import torch
generator, critic = Generator(), Critic()
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr={rate})
"""
EITHER = """
import torch
import sys
if sys.argv[1] == "adam":
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
"""
READ_ELSEWHERE = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=None, help="absolute rate")
parser.add_argument("--base_lr", type=float, default=3.0, help="absolute rate = base_lr * batch / 256")
args = parser.parse_args()
if args.lr is None:
    args.lr = args.base_lr * batch_of(args) / 256
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
"""


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (SEVERAL_RATES.format(other=1e-4, rate=0.1, clip=1.0), "train.py:7"),
        (OVERRIDDEN.format(default=1e-4, given=1.0, optimizer="Adam", clip=1.0, other_clip=1.0), "train.py:12"),
        (OVERRIDDEN.format(default=0.1, given=20, optimizer="SGD", clip=10.0, other_clip=0.25), "train.py:12"),
        (TWO_OPTIMIZERS.format(rate=0.5), "train.py:5"),
    ],
)
def test_the_rate_that_the_optimizer_gets_is_an_error_where_it_is_too_high(text: str, where: str, here: Path) -> None:
    assert said(text, here) == [("lr-too-high", where)]


@pytest.mark.parametrize(
    "text",
    [
        SEVERAL_RATES.format(other=5.0, rate=2e-6, clip=1.0),
        OVERRIDDEN.format(default=1.0, given=1e-4, optimizer="Adam", clip=1.0, other_clip=0),
        OVERRIDDEN.format(default=0.1, given=20, optimizer="SGD", clip=0.25, other_clip=10.0),
        TWO_OPTIMIZERS.format(rate=1e-4),
        EITHER,
        READ_ELSEWHERE,
    ],
)
def test_rates_that_no_optimizer_gets_are_left_in_peace(text: str, here: Path) -> None:
    assert said(text, here) == []


def test_clipping_is_off_where_the_trainer_is_told_so(here: Path) -> None:
    text = "max_grad_norm = {other}\n" + SEVERAL_RATES.format(other=1e-5, rate=2e-6, clip="{clip}")
    assert said(text.format(other=0.0, clip=1.0), here) == []
    assert [cause for cause, _ in said(text.format(other=1.0, clip=0.0), here)] == ["no-clipping"]


LOOP = """
import copy
import torch
from transformers import AutoModelForCausalLM
{before}
optimizer = torch.optim.AdamW({trained}, lr=1e-4{more})
for batch in loader:
    optimizer.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
{after}
"""
LOADED = 'model = AutoModelForCausalLM.from_pretrained("gpt2")\n'
ALL = "model.parameters()"


def loop(before: str, trained: str = ALL, more: str = "", after: str = "") -> str:
    return LOOP.format(before=before, trained=trained, more=more, after=after)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (loop(LOADED + "model.to('cuda', dtype=torch.float16)"), "train.py:6"),
        (loop(LOADED + "model = model.cuda().half()"), "train.py:6"),
        (loop(LOADED + "dtype = torch.float16 if torch.cuda.is_available() else torch.float32\nmodel.to(dtype)"),
         "train.py:6"),
        (loop("def load():\n    net = AutoModelForCausalLM.from_config(config)\n    return net.half()\nmodel = load()"),
         "train.py:7"),
        (loop(LOADED + "model.half()", "[{'params': [p for n, p in model.named_parameters() if 'bias' in n]}]"),
         "train.py:6"),
        (loop(LOADED + "model.half()\nmodel = torch.nn.DataParallel(model)", "filter(wanted, model.parameters())"),
         "train.py:6"),
        (loop("class Task(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
              "        self.lm = AutoModel.from_pretrained('gpt2', torch_dtype=torch.float16)\nmodel = Task()"),
         "train.py:8"),
    ],
)  # fmt: skip
def test_a_cast_of_the_trained_model_is_an_error_under_adam(text: str, where: str, here: Path) -> None:
    assert said(text, here) == [("pure-fp16-weights", where)]


@pytest.mark.parametrize(
    "text",
    [
        loop(LOADED + "pixels = pixels.to('cuda', dtype=torch.float16)\nmask = mask.half()"),
        loop(LOADED + "vae = AutoModel.from_pretrained('vae')\nvae.to('cuda', dtype=torch.float16)\nencoder.half()"),
        loop(LOADED + "average = copy.deepcopy(model)\naverage.half()"),
        loop(LOADED, after="model.half().save_pretrained('out')"),
        loop(LOADED + "baseline = AutoModelForCausalLM.from_pretrained('gpt2', torch_dtype=torch.float16).eval()"),
        loop(LOADED + "model.half().float()"),
        loop(LOADED + "model.half()", more=", eps=1e-4"),
        loop(LOADED + "model.half()").replace("AdamW", "SGD"),
        loop("class Task(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
             "        self.lm = AutoModelForCausalLM.from_pretrained('gpt2')\n        self.encoder = load().half()\n"
             "        for p in self.encoder.parameters():\n            p.requires_grad = False\nmodel = Task()"),
        loop(LOADED + "if given:\n    model.half()"),
    ],
)  # fmt: skip
def test_casts_of_batches_frozen_models_and_copies_are_left_in_peace(text: str, here: Path) -> None:
    assert said(text, here) == []


def told(files: dict[str, str], given: list[str], here: Path) -> list[str]:
    """Causes found in a project."""
    for name, text in files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    return [finding.cause for finding in inspect_files(given).findings]


HYDRA = {
    "train.py": "import hydra\n@hydra.main(config_path='configs', config_name='config')\ndef main(cfg):\n"
    "    build(cfg).fit()\nmain()\n",
    "configs/config.yaml": "defaults:\n  - _self_\n  - experiment: base\nseed: 0\npeak: PEAK\n",
    "configs/experiment/base.yaml": "# @package _global_\ndefaults:\n  - /optimizer: adamw\n",
    "configs/optimizer/adamw.yaml": "_target_: torch.optim.AdamW\nlr: ${peak}\n",
}


@pytest.mark.parametrize(("peak", "causes"), [("3.0", ["lr-too-high"]), ("3e-4", [])])
def test_a_config_that_hydra_composes_from_the_top_is_read(peak: str, causes: list[str], here: Path) -> None:
    files = {name: text.replace("PEAK", peak) for name, text in HYDRA.items()}
    assert told(files, ["train.py"], here) == causes


SPEECH = (
    "lr: {rate}\nbatch_size: 8\nmodel: !new:Net\n    size: 4\n"
    "opt_class: !name:torch.optim.{optimizer}\n    lr: !ref <lr>\n"
)


@pytest.mark.parametrize(
    ("rate", "optimizer", "causes"),
    [(1.0, "Adam", ["lr-too-high"]), (1.0, "Adadelta", []), (0.001, "Adam", [])],
)
def test_what_a_yaml_tag_makes_gets_the_rate_that_it_refers_to(
    rate: float, optimizer: str, causes: list[str], here: Path
) -> None:
    assert told({"hparams.yaml": SPEECH.format(rate=rate, optimizer=optimizer)}, ["hparams.yaml"], here) == causes


FROZEN = """
import torch
for p in encoder.parameters():
    p.requires_grad = False
requires_grad(average, False)
optimizer = torch.optim.{optimizer}(model.parameters(), lr={rate})
"""


@pytest.mark.parametrize(
    ("optimizer", "rate", "causes"), [("AdamW", 1.0, ["lr-too-high"]), ("AdamW", 1e-2, []), ("SGD", 30.0, [])]
)
def test_a_frozen_part_excuses_no_rate_of_adam(optimizer: str, rate: float, causes: list[str], here: Path) -> None:
    assert told({"train.py": FROZEN.format(optimizer=optimizer, rate=rate)}, ["train.py"], here) == causes


TRAINER = "--model_name_or_path bert-base-uncased --output_dir o --num_train_epochs 3 --learning_rate 5e-5 {more}"
OWN_TRAINER = """
import argparse
from dataclasses import dataclass
from transformers import TrainingArguments
from ours import ContrastiveTrainer, ArgumentParserPlus
@dataclass
class Flags:
    use_lora: bool = False
    model_name_or_path: str = ""
args = ArgumentParserPlus((Flags, TrainingArguments)).parse()
ContrastiveTrainer(model=model, args=args, train_dataset=data, eval_dataset=held_out).train()
"""
BEST = "--eval_strategy steps --save_strategy steps --load_best_model_at_end --metric_for_best_model stsb"
WHISPER = """
whisper: true
model: whisper
accum_grad: 4
max_epoch: 80
optim: adam
optim_conf:
  lr: 0.00001
init_model: openai/whisper-large-v3
model_name: openai/whisper-large-v3
filter_conf:
  max_length: {frames}
max_target_length: {tokens}
"""
LENGTHS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--num_iterations", type=int, default=10)
parser.add_argument("--warmup_iters", type=int, default=0)
parser.add_argument("--val_max_steps", type=int, default=20, help="batches of a validation")
parser.add_argument("--lr", type=float, default=1e-4)
args = parser.parse_args()
"""


def test_metrics_of_a_trainer_from_elsewhere_and_its_flags_are_its_own(here: Path) -> None:
    files = {"train.py": OWN_TRAINER}
    command = f"python train.py {TRAINER.format(more=BEST)} --per_device_train_batch_size 8 --use_lora"
    assert told(files, [command], here) == []
    files["train.py"] = OWN_TRAINER.replace("ContrastiveTrainer", "Trainer")
    assert told(files, [command], here) == ["config-contradiction"]
    assert told(files, [command.replace("--use_lora", "--use_lorra")], here)[0] == "config-contradiction"


def test_frames_of_sound_are_no_tokens(here: Path) -> None:
    assert told({"conf.yaml": WHISPER.format(frames=3000, tokens=448)}, ["conf.yaml"], here) == []
    assert told({"conf.yaml": WHISPER.format(frames=3000, tokens=512)}, ["conf.yaml"], here) == [
        "position-out-of-range"
    ]


def test_the_length_of_a_validation_is_not_that_of_the_training(here: Path) -> None:
    command = "python train.py --lr 6e-4 --warmup_iters 700 --num_iterations {}"
    assert told({"train.py": LENGTHS}, [command.format(18865)], here) == []
    assert told({"train.py": LENGTHS}, [command.format(500)], here) == ["lr-schedule-bug"]


FIRST_STEP = """
import torch
class Plan:
    def __init__(self):
        self.{name} = 0
        self.warmup_epochs = 5
    def optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=self.{name}, momentum=0.9)
"""
SPEEDS = (
    "import torch\nSPEED = {{'card': {{'fp16': {speed}, 'bf16': {speed}}}}}\noptimizer = torch.optim.SGD(ps, lr=0.1)\n"
)
PORTED = """
from {library} import Trainer
import lightning
trainer = Trainer(max_epochs=1, device="gpu")
"""
ADVERSARY = """
import torch.nn.functional as F
from torch.optim import SGD
optimizer = SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    kept = F.nll_loss(model(x).log_softmax(1), y)
    masked = -F.nll_loss(model(hide(x)).log_softmax(1), y)
    loss = {total}
    loss.backward()
    optimizer.step()
"""
NAMESAKE = """
from torch import nn
from torch.optim import SGD
model = nn.Linear(8, 4)
from {module} import nll_loss
optimizer = SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = nll_loss(logits, y)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("healthy", "sick", "cause"),
    [
        (FIRST_STEP.format(name="warmup_lr"), FIRST_STEP.format(name="rate"), "lr-zero"),
        (SPEEDS.format(speed=9.8e14), SPEEDS.format(speed="True"), "both-half-formats"),
        (PORTED.format(library="composer"), PORTED.format(library="lightning"), "unknown-setting"),
        (ADVERSARY.format(total="kept + 0.2 * masked"), ADVERSARY.format(total="masked"), "flipped-sign"),
        (NAMESAKE.format(module="speech.losses"), NAMESAKE.format(module="torch.nn.functional"),
         "probability-loss-on-logits"),
    ],
)  # fmt: skip
def test_what_resembles_a_fault_is_told_from_it(healthy: str, sick: str, cause: str, here: Path) -> None:
    assert said(healthy, here) == []
    assert [found for found, _ in said(sick, here)] == [cause]


LAUNCHED = """
import sys
from dataclasses import dataclass, field
from transformers import AutoModelForSeq2SeqLM, HfArgumentParser, Seq2SeqTrainer, Seq2SeqTrainingArguments
@dataclass
class Lengths:
    max_target_length: int = field(default=128)
    val_max_target_length: int = field(default=None)
    def __post_init__(self):
        if self.val_max_target_length is None:
            self.val_max_target_length = self.max_target_length
class OwnParser(HfArgumentParser):
    def parse(self):
        return self.parse_args_into_dataclasses()
lengths, args = OwnParser((Lengths, Seq2SeqTrainingArguments)).parse()
model = AutoModelForSeq2SeqLM.from_pretrained("facebook/bart-base")
Seq2SeqTrainer(model=model, args=args, train_dataset=data, compute_metrics=bleu).train()
"""
LAUNCH = """
{first}
python train.py --model_name_or_path THUDM/chatglm-6b --output_dir o --per_device_train_batch_size 1 {more} \\
  --predict_with_generate --max_target_length 256 --learning_rate 2e-2
"""


@pytest.mark.parametrize(
    ("first", "more", "causes"),
    [("PRE_SEQ_LEN=128", "--pre_seq_len $PRE_SEQ_LEN --quantization_bit 4", []), ("", "", ["lr-too-high"])],
)
def test_a_launch_script_hands_its_flags_to_the_program_that_it_starts(
    first: str, more: str, causes: list[str], here: Path
) -> None:
    files = {"train.py": LAUNCHED, "train.sh": LAUNCH.format(first=first, more=more)}
    assert told(files, ["train.sh"], here) == causes


OWN_CLASS = """
import torch
from dataclasses import dataclass
from configs import Experiment, OwnParser
def main(args):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
(args,) = OwnParser((Experiment,)).parse_args_into_dataclasses()
main(args)
"""
OWN_CONFIG = """
from dataclasses import dataclass
from transformers import HfArgumentParser
@dataclass
class Rates:
    learning_rate: float = {rate}
@dataclass
class Experiment(Rates):
    seed: int = 0
class OwnParser(HfArgumentParser):
    pass
"""


@pytest.mark.parametrize(("rate", "causes"), [(2.0, ["lr-too-high"]), (2e-5, [])])
def test_a_parser_derived_from_a_library_s_fills_dataclasses_of_another_module(
    rate: float, causes: list[str], here: Path
) -> None:
    files = {"train.py": OWN_CLASS, "configs.py": OWN_CONFIG.format(rate=rate)}
    assert told(files, ["train.py"], here) == causes


@pytest.mark.parametrize(
    ("config", "causes"),
    [
        ("SOLVER:\n  OPTIMIZING_METHOD: sgd\n  BASE_LR: 100.0\nTRAIN:\n  BATCH_SIZE: 64\n", ["lr-too-high"]),
        ("SOLVER:\n  OPTIMIZING_METHOD: sgd\n  BASE_LR: 0.1\nTRAIN:\n  BATCH_SIZE: 64\n", []),
        ("optim: adam\noptim_conf:\n  lr: 2.0\nscheduler: warmuplr\n", ["lr-too-high"]),
        ("optim: adam\noptim_conf:\n  lr: 2.0\nscheduler: noam\n", []),
    ],
)
def test_a_config_names_its_optimizer_and_schedule_in_its_own_way(config: str, causes: list[str], here: Path) -> None:
    schedules = "def make(kind, optimizer):\n    return NoamHold(optimizer)\n" if "optim_conf" in config else ""
    files = {"train.py": f"import torch, yaml\n{schedules}config = yaml.safe_load(open('c.yaml'))\n", "c.yaml": config}
    assert told(files, ["python train.py --config c.yaml"], here) == causes


def test_fp16_of_a_llama_is_a_warning_and_of_a_t5_an_error(here: Path) -> None:
    command = "python run.py --model_name_or_path {} --fp16 --learning_rate 1e-5 --output_dir o --warmup_ratio 0.1"
    for model, severity in (("meta-llama/Llama-2-7b-hf", "warning"), ("google/flan-t5-large", "error")):
        found = inspect_files([command.format(model)]).findings
        assert [(each.severity, each.cause) for each in found] == [(severity, "fp16-overflow-model-family")]


SUMMARIES = """
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, Trainer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("facebook/bart-base")
def encode(rows):
    inputs = tokenizer(rows["text"], truncation=True)
    labels = tokenizer(rows["summary"], {padding}truncation=True)
    {mask}
    inputs["labels"] = labels["input_ids"]
    return inputs
model = AutoModelForSeq2SeqLM.from_pretrained("facebook/bart-base")
args = TrainingArguments("out", learning_rate=2e-5, num_train_epochs=1)
Trainer(model=model, args=args, train_dataset=rows.map(encode)).train()
"""
COLLATED = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments
IGNORED = -100
def collate(rows):
    labels = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value={value})
    return {{"input_ids": ids, "labels": labels}}
model = AutoModelForCausalLM.from_pretrained("gpt2")
args = TrainingArguments("out", learning_rate=2e-5, num_train_epochs=1)
Trainer(model=model, args=args, train_dataset=rows, data_collator=collate).train()
"""
REPLACED = 'labels["input_ids"] = [[-100 if t == tokenizer.pad_token_id else t for t in row] for row in labels]'


@pytest.mark.parametrize(
    ("healthy", "sick"),
    [
        (SUMMARIES.format(padding="", mask=""), SUMMARIES.format(padding='padding="max_length", ', mask="")),
        (SUMMARIES.format(padding='padding="max_length", ', mask=REPLACED),
         SUMMARIES.format(padding="padding='max_length', ", mask="pass")),
        (COLLATED.format(value="IGNORED"), COLLATED.format(value="tokenizer.pad_token_id")),
    ],
)  # fmt: skip
def test_padding_in_labels_is_told_from_labels_without_it(healthy: str, sick: str, here: Path) -> None:
    assert said(healthy, here) == []
    assert [found for found, _ in said(sick, here)] == ["padding-learned"]
