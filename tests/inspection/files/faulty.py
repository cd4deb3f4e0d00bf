"""Plans with one planted fault each, by the cause that it must be found under."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Planted:
    """A fault: what `stayfinite check` is given, and what it must say."""

    cause: str
    files: dict[str, str]
    says: str
    """Part of the evidence."""
    given: tuple[str, ...] = ()
    """What is named on the command line; all files unless told otherwise."""
    gpu: str | None = None


T5 = (
    "model_name_or_path: google/flan-t5-large\noutput_dir: o\nlearning_rate: 1e-4\nnum_train_epochs: 3\n"
    "warmup_ratio: 0.1\n"
)
BERT = (
    "model_name_or_path: bert-base-uncased\noutput_dir: o\nlearning_rate: 2e-5\nnum_train_epochs: 3\n"
    "per_device_train_batch_size: 16\nlogging_steps: 50\n"
)
LLAMA = (
    "model_name_or_path: meta-llama/Llama-2-7b-hf\noutput_dir: o\nlearning_rate: 1e-5\nnum_train_epochs: 3\n"
    "per_device_train_batch_size: 2\nwarmup_ratio: 0.03\n"
)
LORA = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = get_peft_model(AutoModelForCausalLM.from_pretrained("facebook/opt-1.3b"), LoraConfig(r=8))
args = TrainingArguments("out", learning_rate=3e-4, num_train_epochs=1, {more})
Trainer(model=model, args=args, train_dataset=data).train()
"""
TRAINER = """
import torch
from transformers import AutoModelForSequenceClassification, EarlyStoppingCallback, Trainer, TrainingArguments
model = AutoModelForSequenceClassification.from_pretrained("roberta-base"{loading})
args = TrainingArguments(output_dir="out", learning_rate=2e-5, num_train_epochs=3, {more})
trainer = Trainer(model=model, args=args, train_dataset=train{data})
trainer.train()
"""
ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, default=1e-4)
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--fp16", action="store_true")
args = parser.parse_args()
"""
HF_SCRIPT = """
from dataclasses import dataclass, field
from transformers import HfArgumentParser, TrainingArguments

@dataclass
class ModelArguments:
    model_name_or_path: str = field(default="bert-base-cased")
    freeze_layers: int = 0

parser = HfArgumentParser((ModelArguments, TrainingArguments))
model_args, training_args = parser.parse_args_into_dataclasses()
"""
LOOP = """
import torch
from torch.cuda.amp import GradScaler, autocast
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
scaler = GradScaler()
for x, y in loader:
    optimizer.zero_grad()
    with autocast():
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
CLASSIFIER = """
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 4)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x):
        x = self.last(x)
        return self.softmax(x)

model = {model}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
criterion = nn.CrossEntropyLoss()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion({out}, y)
    loss.backward()
    optimizer.step()
"""
DS = '{{"train_micro_batch_size_per_gpu": {micro}, "zero_optimization": {{"stage": {stage}}}, {more}}}'


def _one(cause: str, name: str, text: str, says: str, gpu: str | None = None) -> Planted:
    return Planted(cause, {name: text}, says, gpu=gpu)


PLANTED = [
    _one("fp16-overflow-model-family", "t5.yaml", T5 + "fp16: true\n", "flan-t5-large"),
    _one("fp16-overflow-model-family", "full.yaml", LLAMA + "fp16: true\n", "Llama-2-7b"),
    Planted(
        "fp16-overflow-model-family",
        {},
        "mt5-small",
        given=("python run.py --model_name_or_path google/mt5-small --fp16 --learning_rate 1e-4 --output_dir o",),
    ),
    _one(
        "fp16-overflow-model-family",
        "class.py",
        "from transformers import T5ForConditionalGeneration, TrainingArguments\n"
        "model = T5ForConditionalGeneration.from_pretrained(path)\n"
        "TrainingArguments('o', fp16=True, learning_rate=1e-4)\n",
        "T5",
    ),
    _one(
        "double-fp16",
        "double.py",
        TRAINER.format(loading=", torch_dtype=torch.float16", more="fp16=True", data=""),
        "makes fp16 weights",
    ),
    _one(
        "pure-fp16-weights",
        "pure.py",
        TRAINER.format(loading=", torch_dtype=torch.float16", more="seed=1", data=""),
        "trained directly",
    ),
    _one(
        "pure-fp16-weights",
        "true.yaml",
        "trainer:\n  precision: 16-true\n  max_epochs: 3\noptimizer:\n  lr: 0.001\n",
        "16-true",
    ),
    _one("double-fp16", "loop.py", LOOP.replace("Net()", "Net().cuda().half()"), "makes fp16 weights"),
    _one("clip-before-unscale", "clip.py", LOOP.replace("scaler.unscale_(optimizer)", "pass"), "never unscaled"),
    _one(
        "no-zero-grad",
        "pile.py",
        LOOP.replace("    optimizer.zero_grad()\n", ""),
        "optimizer.zero_grad() is never called",
    ),
    *(
        _one("softmax-before-cross-entropy", f"softmax{number}.py", CLASSIFIER.format(model=model, out=out), says)
        for number, (model, out, says) in enumerate(
            [
                ("nn.Sequential(nn.Linear(8, 4), nn.Softmax(dim=1)).to(device)", "model(x)", "model(x)"),
                ("nn.DataParallel(Net().cuda())", "model(x)", "model(x)"),
                ("nn.Linear(8, 4)", "F.softmax(model(x), dim=1)", "F.softmax(model(x), dim=1)"),
            ]
        )
    ),
    _one("both-half-formats", "both.yaml", BERT + "fp16: true\nbf16: true\n", "bf16: True"),
    _one(
        "both-half-formats",
        "ds.json",
        DS.format(micro=1, stage=2, more='"fp16": {"enabled": true}, "bf16": {"enabled": true}'),
        "bf16.enabled",
    ),
    Planted(
        "both-half-formats",
        {"train.yaml": BERT + "fp16: true\n"},
        "--bf16",
        given=("train.yaml", "python train.py --bf16 --output_dir o"),
    ),
    _one("lr-zero", "zero.yaml", BERT.replace("2e-5", "0"), "nothing is learned"),
    _one("config-contradiction", "negative.yaml", BERT.replace("2e-5", "-2e-5"), "a number above 0"),
    _one("lr-too-high", "full_high.yaml", LLAMA.replace("1e-5", "1e-3"), "too high"),
    _one("lr-too-high", "bert_high.yaml", BERT.replace("2e-5", "0.01"), "pre-trained transformer"),
    _one("lr-too-high", "lora_high.py", LORA.format(more="bf16=True").replace("3e-4", "0.05"), "adapters"),
    _one(
        "lr-too-high",
        "sgd.py",
        "import torch\noptimizer = torch.optim.SGD(model.parameters(), lr=50.0, momentum=0.9)\n"
        "batch_size = 32\nepochs = 3\n",
        "SGD",
    ),
    _one("lr-too-high", "adam.yaml", "optimizer: adam\nlr: 0.5\nepochs: 10\n", "Adam"),
    _one("lr-too-high", "scratch.yaml", "arch: transformer_base\noptimizer: adam\nlr: 0.1\nepochs: 10\n", "too high"),
    _one("lr-too-low", "lora_low.py", LORA.format(more="bf16=True").replace("3e-4", "1e-8"), "is too low"),
    _one("lr-too-low", "sgd_low.yaml", "optimizer: SGD\nlr: 1e-8\nepochs: 90\nbatch_size: 256\n", "SGD"),
    _one("lr-schedule-bug", "warm.yaml", BERT + "warmup_steps: 2000\nmax_steps: 1000\n", "never reached"),
    _one("lr-schedule-bug", "ratio.yaml", BERT + "warmup_ratio: 10\n", "whole training"),
    _one("lr-schedule-bug", "epochs.yaml", "lr: 1e-3\nepochs: 5\nwarmup_epochs: 20\nopt: adamw\n", "never reached"),
    _one(
        "lr-schedule-bug",
        "min.yaml",
        "learning_rate: 1e-5\nmin_lr: 1e-4\nmax_iters: 1000\nwarmup_iters: 10\n",
        "min_lr",
    ),
    _one(
        "no-warmup",
        "steep.yaml",
        LLAMA.replace("1e-5", "2e-4").replace("warmup_ratio: 0.03", "warmup_ratio: 0"),
        "steep",
    ),
    _one("no-clipping", "clip.yaml", LLAMA + "max_grad_norm: 0\n", "disables clipping"),
    _one("no-clipping", "rnn.yaml", "model: lstm\nlr: 1e-3\ngradient_clip_val: 0.0\nmax_epochs: 10\n", "through time"),
    _one("quantized-weights", "bits.yaml", LLAMA + "load_in_8bit: true\n", "no adapters"),
    _one(
        "quantized-weights",
        "factory.yaml",
        LLAMA + "finetuning_type: full\nquantization_bit: 4\ntemplate: llama2\nstage: sft\n",
        "no adapters",
    ),
    _one(
        "gradient-checkpointing-no-input-grad",
        "frozen.py",
        LORA.format(more="gradient_checkpointing=True, gradient_checkpointing_kwargs={'use_reentrant': True}"),
        "frozen base",
    ),
    _one("position-out-of-range", "long.yaml", BERT + "max_seq_length: 1024\n", "positions for 512"),
    _one(
        "generation-too-short",
        "short.yaml",
        T5 + "predict_with_generate: true\ngeneration_max_length: 20\nmax_target_length: 256\n",
        "answers are cut",
    ),
    _one(
        "generation-too-short",
        "unlimited.py",
        "from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainingArguments\n"
        'AutoModelForSeq2SeqLM.from_pretrained("t5-small")\n'
        'Seq2SeqTrainingArguments("o", predict_with_generate=True, learning_rate=1e-4)\n',
        "stops at 20",
    ),
    _one("all-labels-masked", "dpo.yaml", LLAMA + "max_length: 512\nmax_prompt_length: 512\nbeta: 0.1\n", "no room"),
    _one("config-contradiction", "stride.yaml", BERT + "max_seq_length: 128\ndoc_stride: 128\n", "doc_stride"),
    _one(
        "config-contradiction",
        "best.yaml",
        BERT + "load_best_model_at_end: true\neval_strategy: epoch\nsave_strategy: steps\n",
        "the same for both",
    ),
    _one(
        "config-contradiction",
        "best_default.py",
        TRAINER.format(loading="", more="load_best_model_at_end=True", data=", eval_dataset=valid"),
        "has its default, 'no'",
    ),
    _one(
        "config-contradiction",
        "multiples.yaml",
        BERT + "load_best_model_at_end: true\neval_strategy: steps\n"
        "save_strategy: steps\neval_steps: 200\nsave_steps: 500\n",
        "multiples",
    ),
    _one(
        "config-contradiction",
        "metric.py",
        TRAINER.format(
            loading="",
            more="eval_strategy='epoch', save_strategy='epoch', "
            "load_best_model_at_end=True, metric_for_best_model='f1'",
            data=", eval_dataset=valid",
        ),
        "never computed",
    ),
    _one(
        "config-contradiction",
        "greater.yaml",
        BERT + "metric_for_best_model: eval_loss\ngreater_is_better: true\n",
        "worst checkpoint",
    ),
    _one(
        "config-contradiction",
        "no_data.py",
        TRAINER.format(loading="", more="eval_strategy='epoch'", data=""),
        "no eval_dataset",
    ),
    _one(
        "config-contradiction",
        "factory_eval.yaml",
        LLAMA + "finetuning_type: lora\ntemplate: llama2\nstage: sft\neval_strategy: steps\n",
        "val_size",
    ),
    _one("config-contradiction", "batch.json", DS.format(micro=3, stage=1, more='"train_batch_size": 32'), "multiple"),
    _one(
        "config-contradiction",
        "offload.json",
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}',
        "needs stage 3",
    ),
    Planted(
        "config-contradiction",
        {"train.yaml": BERT, "ds.json": DS.format(micro=8, stage=2, more='"gradient_clipping": 1.0')},
        "per_device_train_batch_size: 16",
    ),
    Planted(
        "config-contradiction",
        {
            "train.yaml": BERT + "deepspeed: ds.json\nbf16: true\n",
            "ds.json": DS.format(micro=16, stage=2, more='"bf16": {"enabled": false}'),
        },
        "bf16.enabled",
        given=("train.yaml",),
    ),
    _one("unknown-setting", "slip.yaml", BERT.replace("learning_rate", "learing_rate"), "did you mean learning_rate"),
    _one("unknown-setting", "plural.yaml", BERT + "max_step: 100\n", "did you mean max_steps"),
    _one(
        "unknown-setting",
        "call.py",
        TRAINER.format(loading="", more="lr_schedular_type='cosine'", data=""),
        "did you mean TrainingArguments.lr_scheduler_type",
    ),
    _one(
        "unknown-setting",
        "ds_slip.json",
        DS.format(micro=1, stage=2, more='"gradient_cliping": 1.0'),
        "did you mean gradient_clipping",
    ),
    _one(
        "unknown-setting",
        "zero.json",
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "overlap_com": true, '
        '"contiguous_gradients": true, "reduce_scatter": true}}',
        "did you mean zero_optimization.overlap_comm",
    ),
    _one(
        "unknown-setting",
        "light.yaml",
        "trainer:\n  max_epochs: 3\n  devices: 1\n  precision: bf16-mixed\n  acumulate_grad_batches: 4\n",
        "did you mean trainer.accumulate_grad_batches",
    ),
    Planted(
        "unknown-setting",
        {"train.py": ARGPARSE},
        "did you mean --learning_rate",
        given=("python train.py --learing_rate 1e-4 --batch_size 4",),
    ),
    Planted(
        "unknown-setting",
        {"train.py": ARGPARSE},
        "did you mean --learning_rate",
        given=("python train.py --learning-rate 1e-4",),
    ),
    Planted("unknown-setting", {"train.py": ARGPARSE}, "does not define --bf16", given=("python train.py --bf16",)),
    Planted(
        "unknown-setting",
        {"sft.py": "from trl import SFTConfig, TrlParser\nkinds = (SFTConfig,)\nTrlParser(kinds).parse_args()\n"},
        "did you mean --num_train_epochs",
        given=(
            "accelerate launch sft.py --model_name_or_path gpt2 --num_train_epoch 1 --logging_steps 5 --output_dir o",
        ),
    ),
    Planted(
        "unknown-setting",
        {"train.py": HF_SCRIPT},
        "did you mean --freeze_layers",
        given=("torchrun --nproc_per_node 2 train.py --freeze_layer 3 --output_dir o --num_train_epochs 3",),
    ),
    Planted(
        "unknown-setting",
        {
            "train.py": ARGPARSE,
            "run.sh": "#!/bin/bash\nexport X=1\npython train.py --learning_rte 1e-4 \\\n  --batch_size 4\n",
        },
        "did you mean --learning_rate",
        given=("run.sh",),
    ),
    _one("config-contradiction", "cut.json", '{"learning_rate": 1e-4, "num_train_epochs": 3, "output_', "incomplete"),
    _one("config-contradiction", "tabs.yaml", "lr: 1e-4\nmodel:\n\tname: x\n  b: [1\n", "invalid YAML"),
    _one("bf16-unsupported", "v100.yaml", BERT + "bf16: true\n", "V100", gpu="V100"),
    _one(
        "bf16-unsupported",
        "t4.json",
        DS.format(micro=1, stage=2, more='"bf16": {"enabled": true}, "optimizer": {"params": {"lr": 1e-4}}'),
        "T4",
        gpu="T4",
    ),
    _one(
        "bf16-unsupported",
        "launcher.json",
        DS.format(micro=1, stage=2, more='"bf16": {"enabled": true}'),
        "but a T4 (Turing) has no bf16",
        gpu="T4",
    ),
    _one(
        "bf16-unsupported",
        "accelerate.yaml",
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 2\n",
        "but a V100 (Volta) has no bf16",
        gpu="V100",
    ),
    _one(
        "card-lacks-feature",
        "eight_bits.yaml",
        "compute_environment: LOCAL_MACHINE\nmixed_precision: fp8\nnum_processes: 2\n",
        "but an A100 (Ampere) has no fp8",
        gpu="A100",
    ),
    _one("card-lacks-feature", "tf32.yaml", BERT + "tf32: true\n", "no TF32", gpu="T4"),
    _one(
        "card-lacks-feature",
        "flash.yaml",
        LLAMA + "attn_implementation: flash_attention_2\n",
        "FlashAttention 2",
        gpu="V100",
    ),
    _one(
        "card-lacks-feature",
        "fp8.yaml",
        "compute_environment: LOCAL_MACHINE\nmixed_precision: fp8\nnum_processes: 1\n",
        "no fp8",
        gpu="A100",
    ),
    Planted(
        "out-of-memory",
        {},
        "GiB",
        given=(
            "python sft.py --model_name_or_path meta-llama/Llama-2-13b-hf --bf16 --learning_rate 1e-5 --output_dir o",
        ),
        gpu="A100-40GB",
    ),
    _one(
        "config-contradiction",
        "lightning.yaml",
        "trainer:\n  max_epochs: 9\nmodel:\n  lr: 3e-4\noptimizer:\n  class_path: torch.optim.AdamW\n"
        "  init_args:\n    lr: -3e-4\n",
        "optimizer.init_args.lr: -0.0003",
    ),
    _one(
        "lr-too-high",
        "tune.yaml",
        "model:\n  _component_: torchtune.models.llama3.llama3_8b\nepochs: 3\ndtype: bf16\noptimizer:\n"
        "  _component_: bitsandbytes.optim.PagedAdamW\n  lr: 2e-1\n",
        "optimizer.lr: 0.2",
    ),
    _one(
        "fp16-overflow-model-family",
        "tune16.yaml",
        "model:\n  _component_: torchtune.models.llama3.llama3_8b\nepochs: 3\ndtype: fp16\noptimizer:\n"
        "  _component_: torch.optim.AdamW\n  lr: 2e-5\n",
        "llama3_8b",
    ),
    _one(
        "lr-too-high",
        "gpt.py",
        "learning_rate = 6e-1\nmax_iters = 600000\nbeta1 = 0.9\nbeta2 = 0.95\ngrad_clip = 1.0\nwarmup_iters = 2000\n",
        "too high for Adam",
    ),
    _one(
        "lr-too-high",
        "rcnn.py",
        "optim_wrapper = dict(optimizer=dict(type='SGD', lr=20, momentum=0.9), clip_grad=dict(max_norm=35))\n"
        "train_cfg = dict(max_epochs=12)\ntrain_dataloader = dict(batch_size=2)\n",
        "too high for SGD",
    ),
    _one(
        "pure-fp16-weights",
        "half_under_bf16.py",
        TRAINER.format(loading=", torch_dtype=torch.float16", more="bf16=True", data=""),
        "no loss scaler under bf16",
    ),
    Planted(
        "fp16-overflow-model-family",
        {},
        "t5-base",
        given=("LR=1e-4; python run.py --lr $LR --fp16 --model_name_or_path ${MODEL:-t5-base} && echo done",),
    ),
    _one(
        "config-contradiction",
        "cut_off.py",
        'from transformers import TrainingArguments\nargs = TrainingArguments("o", learning_rate=1e-4, bf16=True\n',
        "never closed",
    ),
]
