"""Programs and configs in the manner of well-known ones, rebuilt from their facts: they work, and none is warned of."""

FAMOUS: dict[str, str] = {}

WORDS = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=20, help="first learning rate")
parser.add_argument("--clip", type=float, default=0.25, help="largest norm")
parser.add_argument("--batch_size", type=int, default=20)
parser.add_argument("--with-adam", action="store_true", help="AdamW in place of the plain update")
args = parser.parse_args()
model = Recurrent(words, 200)
measure = torch.nn.NLLLoss()
if args.with_adam:
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
lr = args.lr
for data, targets in batches:
    model.zero_grad()
    loss = measure(model(data), targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    if args.with_adam:
        optimizer.step()
    else:
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
"""
"""A recurrent language model under plain SGD: the norm times the rate bounds a step."""
FAMOUS["words.py"] = WORDS

FAMOUS["short_tune.yaml"] = """
checkpoint_dir: checkpoints/some/model-2b
precision: bf16-true
train:
  epochs: 1
  global_batch_size: 16
  micro_batch_size: 1
  lr_warmup_steps: 200
eval:
  interval: 25
  max_iters: 100
optimizer:
  class_path: torch.optim.AdamW
  init_args:
    lr: 0.0002
"""
"""An evaluation of 100 batches is no training of 100 steps."""

FAMOUS["few_shot.py"] = """
import learn2learn as l2l
import torch
from torch import optim
def main(meta_lr=0.003, fast_lr=0.5, iterations=60000):
    learner = l2l.algorithms.MAML(l2l.vision.models.OmniglotFC(28 ** 2, 5), lr=fast_lr, first_order=False)
    optimizer = optim.Adam(learner.parameters(), meta_lr)
    measure = torch.nn.CrossEntropyLoss()
    for step in range(iterations):
        optimizer.zero_grad()
        error = measure(learner(x), y)
        error.backward()
        optimizer.step()
"""
"""The inner rate of a learner that learns to learn is not Adam's."""

FAMOUS["layerwise.py"] = """
import torch
class Layerwise(torch.optim.Optimizer):
    def __init__(self, params, lr=0, weight_decay=0, momentum=0.9, trust=0.001):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, trust=trust))
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])
"""
FAMOUS["log_rates.py"] = """
for samples, targets in loader:
    loss = criterion(model(samples), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    min_lr = 10.0
    max_lr = 0.0
    for group in optimizer.param_groups:
        min_lr = min(min_lr, group["lr"])
        max_lr = max(max_lr, group["lr"])
"""
FAMOUS["noam.py"] = """
import torch
class Warm:
    def __init__(self, width, factor, warmup, optimizer):
        self.width, self.factor, self.warmup, self.optimizer, self.count = width, factor, warmup, optimizer, 0
    def step(self):
        self.count += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.factor * self.width ** -0.5 * min(self.count ** -0.5, self.count * self.warmup ** -1.5)
        self.optimizer.step()
optimizer = Warm(512, 2, 4000, torch.optim.Adam(model.parameters(), lr=0, betas=(0.9, 0.98), eps=1e-9))
"""
FAMOUS["latent.py"] = """
import torch
def smooth(sample, steps=20):
    latent = torch.nn.Parameter(sample.detach().clone())
    optimizer = torch.optim.Adam([latent], lr=0.4)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = distance(latent, sample)
        loss.backward()
        optimizer.step()
    return latent
"""
"""What is moved is a picture, and no weight."""

FAMOUS["one_layer.py"] = """
import torch
model = OneLayer(1433, 7)
optimizer = torch.optim.Adam(model.parameters(), lr=0.2, weight_decay=0.005)
"""

PEFT = """
from peft import {config}, get_peft_model
from transformers import AutoModelForSeq2SeqLM
import torch
lr = {rate}
num_epochs = 3
model = get_peft_model(AutoModelForSeq2SeqLM.from_pretrained("{model}"), {config}(task_type="SEQ_2_SEQ_LM"))
optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
for epoch in range(num_epochs):
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""
for config, rate in {
    "IA3Config": 8e-3, "LNTuningConfig": 0.05, "VeraConfig": 0.01, "FourierFTConfig": 0.15, "PromptTuningConfig": 1.0,
    "LoraConfig": 5e-3,
}.items():  # fmt: skip
    FAMOUS[f"{config.lower()}.py"] = PEFT.format(config=config, rate=rate, model="facebook/bart-base")

FAMOUS["remote.py"] = """
import torch.distributed.autograd as dist_autograd
from torch import optim
from torch.distributed.optim import DistributedOptimizer
def run_training(net, loader, criterion):
    opt = DistributedOptimizer(optim.SGD, net.remote_parameters(), lr=0.05)
    for data, target in loader:
        with dist_autograd.context() as context:
            loss = criterion(net(data), target)
            dist_autograd.backward(context, [loss])
            opt.step(context)
"""
"""The gradients of each step live in a context of their own."""

FAMOUS["sharded.py"] = """
import torch
from torch.distributed.tensor.parallel import parallelize_module
model = parallelize_module(Toy(), mesh, plan)
lr = 0.25
optimizer = torch.optim.AdamW(model.parameters(), lr=lr, foreach=True)
for i in range(10):
    torch.manual_seed(i)
    inp = torch.rand(20, 10, device="cuda")
    output = model(inp)
    output.sum().backward()
    optimizer.step()
"""
"""Ten steps that show that parallel code runs: there is no loss, and nothing is to be learned."""

FAMOUS["detector.py"] = """
import torch
scaler = torch.cuda.amp.GradScaler()
model.half().float()  # anchors as fp16 has them
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.937)
for images, targets in loader:
    with torch.cuda.amp.autocast():
        loss, items = measure(model(images), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
FAMOUS["quantized.py"] = """
import argparse
import torch
from peft import LoraConfig, RandLoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
def train(base, use_lora: bool = False, rate: float = 1e-4):
    bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
    model = prepare_model_for_kbit_training(AutoModelForCausalLM.from_pretrained(base, quantization_config=bits))
    config = LoraConfig(r=32) if use_lora else RandLoraConfig(r=32)
    model = get_peft_model(model, config)
    Trainer(model=model, args=TrainingArguments("out", learning_rate=1e-4, warmup_steps=100)).train()
"""
FAMOUS["episodes.py"] = """
import argparse
from trl import GRPOConfig, GRPOTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--max-steps", type=int, default=10, help="actions in an episode")
parser.add_argument("--warmup-steps", type=int, default=10)
args = parser.parse_args()
config = GRPOConfig(output_dir="o", learning_rate=5e-6, warmup_steps=args.warmup_steps, num_train_epochs=1)
GRPOTrainer(model="some/model", args=config, reward_funcs=[reward], train_dataset=dataset).train()
"""
FAMOUS["reranker.py"] = """
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
evaluator = Ranking(name="dev")
args = CrossEncoderTrainingArguments(
    output_dir="models", num_train_epochs=1, learning_rate=2e-5, warmup_ratio=0.1, bf16=True, eval_strategy="steps",
    eval_steps=1000, save_strategy="steps", save_steps=1000, load_best_model_at_end=True,
    metric_for_best_model="eval_dev_ndcg@10",
)
CrossEncoderTrainer(model=CrossEncoder("bert-base-uncased"), args=args, train_dataset=data, evaluator=evaluator).train()
"""
FAMOUS["pretrain_llama.py"] = """
import argparse
import torch
class LLaMAModel(torch.nn.Module):
    pass
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1.5e-4)
parser.add_argument("--fp16", action="store_true", default=True)
parser.add_argument("--clip-grad", type=float, default=1.0)
args = parser.parse_args()
model = LLaMAModel(layers=32)
"""
"""A shape that is trained from scratch has no weights that another format was needed for."""

FAMOUS["either.py"] = """
import deepspeed
import torch
config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "Adam", "params": {"lr": 1e-6}}}
if dtype == torch.float16:
    config["fp16"] = {"enabled": True, "initial_scale_power": 8}
elif dtype == torch.bfloat16:
    config["bf16"] = {"enabled": True}
engine, *_ = deepspeed.initialize(model=model, config=config)
"""
FAMOUS["both_loops.py"] = """
import torch
def plain(batch):
    loss = measure(model(batch))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
def scaled(batch):
    loss = measure(model(batch))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
for batch in loader:
    optimizer.zero_grad()
    (plain if scaler is None else scaled)(batch)
"""
FAMOUS["swin_detector.py"] = """
_base_ = ["../_base_/models/retinanet_r50_fpn.py", "../_base_/schedules/schedule_1x.py"]
pretrained = "https://example.org/swin_tiny_patch4_window7_224.pth"
model = dict(backbone=dict(type="SwinTransformer", init_cfg=dict(type="Pretrained", checkpoint=pretrained)))
optim_wrapper = dict(optimizer=dict(lr=0.01))
"""
FAMOUS["graph_nodes.py"] = """
import torch
import torch.nn.functional as F
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(200):
    optimizer.zero_grad()
    log_logits = model(x, edge_index)
    loss = F.nll_loss(log_logits[train], y[train])
    loss.backward()
    optimizer.step()
"""
OWN_MODEL = """
import torch
import torch.nn.functional as F
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(16, 3)
    def forward(self, x):
        return F.log_softmax(self.last(x), dim=1)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for x, y in loader:
    optimizer.zero_grad()
    logits = model(x)
    loss = F.nll_loss(logits, y)
    loss.backward()
    optimizer.step()
"""
FAMOUS["called_logits.py"] = OWN_MODEL
FAMOUS["model_elsewhere.py"] = (
    "import torch\nimport torch.nn.functional as F\nfrom models import Net\n" + OWN_MODEL.partition("dim=1)")[2]
)
FAMOUS["small_t5.py"] = """
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments
model = AutoModelForSeq2SeqLM.from_pretrained("t5-small")
args = Seq2SeqTrainingArguments("out", learning_rate=2e-5, num_train_epochs=1, fp16=True, weight_decay=0.01)
Seq2SeqTrainer(model, args, train_dataset=data).train()
"""
FAMOUS["visual_chat.sh"] = """
deepspeed main.py --max_seq_len 4096 --lm_model_name_or_path meta-llama/Llama-2-7b-hf \\
  --vision_model_name_or_path openai/clip-vit-large-patch14 --learning_rate 1e-3 --num_warmup_steps 0.1 \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 1 --num_train_epochs 6 --output_dir out \\
  --dataset_names llava
"""
"""Between two models that are there already a projection is learned; and the program names its own flags."""

FAMOUS["word_table.py"] = """
import torch
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.5)
"""
FAMOUS["quasi_newton.py"] = """
import torch
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8)
"""
FAMOUS["fast_images.py"] = """
import torch
from torchvision.models import resnet18
model = resnet18()
optimizer = torch.optim.SGD(model.parameters(), lr=3.0, momentum=0.9, nesterov=True)
batch_size = 128
epochs = 18
"""
"""Norm layers bear what plain layers do not."""

FAMOUS["steered_sampling.py"] = """
import torch


def sample(unet, scheduler, latents, timesteps, guidance=0.1):
    for t in timesteps:
        steered = latents.detach().clone().requires_grad_(True)
        opt = torch.optim.SGD([steered], lr=guidance)
        loss = (unet(steered, t) - unet(latents, t)).square().mean()
        loss.backward()
        opt.step()
        latents = scheduler.step(unet(steered.detach(), t), t, latents)
    return latents
"""

FAMOUS["rate_for_the_log.py"] = """
import torch
from transformers import Trainer


def rate_of(trainer):
    try:
        last_lr = trainer.lr_scheduler.get_last_lr()[0]
    except AssertionError:
        last_lr = 0  # no step was taken yet
    return last_lr


Trainer._get_learning_rate = rate_of
"""

FAMOUS["adapters_in_8_bit.py"] = """
import torch
import transformers
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import LlamaForCausalLM


def train(base_model: str = "", batch_size: int = 128, micro_batch_size: int = 4, learning_rate: float = 3e-4):
    model = LlamaForCausalLM.from_pretrained(base_model, load_in_8bit=True, torch_dtype=torch.float16)
    model = prepare_model_for_kbit_training(model)
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, task_type="CAUSAL_LM"))
    transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(
            per_device_train_batch_size=micro_batch_size,
            gradient_accumulation_steps=batch_size // micro_batch_size,
            warmup_steps=100, num_train_epochs=3, learning_rate=learning_rate, fp16=True, output_dir="out",
        ),
    ).train()
"""
