"""Plans that work, of many kinds and frameworks, written as people write them: none of them may be warned of."""

HEALTHY: dict[str, str] = {}

HEALTHY["glue_trainer.py"] = """
import numpy as np
from datasets import load_dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments

tokenizer = AutoTokenizer.from_pretrained("bert-base-cased")
model = AutoModelForSequenceClassification.from_pretrained("bert-base-cased", num_labels=2)
data = load_dataset("glue", "mrpc").map(
    lambda row: tokenizer(row["sentence1"], row["sentence2"], truncation=True, max_length=512)
)

def compute_metrics(pair):
    return {"accuracy": float((np.argmax(pair[0], -1) == pair[1]).mean())}

arguments = TrainingArguments(
    output_dir="out", learning_rate=5e-5, num_train_epochs=3, per_device_train_batch_size=16, fp16=True,
    eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="accuracy",
    weight_decay=0.01, report_to="none",
)
Trainer(
    model=model, args=arguments, train_dataset=data["train"], eval_dataset=data["validation"],
    compute_metrics=compute_metrics,
).train()
"""

HEALTHY["t5_summary.py"] = """
from transformers import (
    AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments,
)

CHECKPOINT = "google/flan-t5-base"
MAX_SOURCE, MAX_TARGET = 1024, 128
tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
model = AutoModelForSeq2SeqLM.from_pretrained(CHECKPOINT)

def prepare(rows):
    found = tokenizer(["summarize: " + each for each in rows["text"]], max_length=MAX_SOURCE, truncation=True)
    found["labels"] = tokenizer(text_target=rows["summary"], max_length=MAX_TARGET, truncation=True)["input_ids"]
    return found

args = Seq2SeqTrainingArguments(
    output_dir="flan", eval_strategy="steps", save_strategy="steps", eval_steps=250, save_steps=500,
    load_best_model_at_end=True, learning_rate=1e-4, bf16=True, predict_with_generate=True,
    generation_max_length=MAX_TARGET, per_device_train_batch_size=8, gradient_accumulation_steps=4,
    lr_scheduler_type="cosine", warmup_ratio=0.05, num_train_epochs=4,
)
Seq2SeqTrainer(
    model=model, args=args, train_dataset=train, eval_dataset=valid, data_collator=DataCollatorForSeq2Seq(tokenizer),
).train()
"""

HEALTHY["qlora_sft.py"] = """
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments

bits = BitsAndBytesConfig(
    load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_use_double_quant=True,
)
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", quantization_config=bits, device_map="auto")
model = prepare_model_for_kbit_training(model)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "v_proj"], lora_dropout=0.05))
args = TrainingArguments(
    output_dir="qlora", learning_rate=2e-4, per_device_train_batch_size=4, gradient_accumulation_steps=4,
    max_grad_norm=0.3, warmup_ratio=0.03, bf16=True, gradient_checkpointing=True, optim="paged_adamw_32bit",
    max_steps=1000, logging_steps=10,
)
Trainer(model=model, args=args, train_dataset=data).train()
"""

HEALTHY["lora_not_reentrant.py"] = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = get_peft_model(AutoModelForCausalLM.from_pretrained("facebook/opt-1.3b"), LoraConfig(r=8, lora_alpha=16))
args = TrainingArguments(
    "out", learning_rate=3e-4, fp16=True, gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False}, num_train_epochs=1, per_device_train_batch_size=8,
)
Trainer(model=model, args=args, train_dataset=data).train()
"""

HEALTHY["trl_sft.py"] = """
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

trainer = SFTTrainer(
    model="Qwen/Qwen2.5-0.5B",
    train_dataset=load_dataset("trl-lib/Capybara", split="train"),
    args=SFTConfig(output_dir="sft", learning_rate=2e-4, bf16=True, max_length=2048, packing=True,
                   gradient_checkpointing=True, per_device_train_batch_size=2, gradient_accumulation_steps=8),
    peft_config=LoraConfig(r=32, lora_alpha=16),
)
trainer.train()
"""

HEALTHY["mnist.py"] = """
import argparse
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--no-accel", action="store_true")
    args = parser.parse_args()
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    for epoch in range(1, args.epochs + 1):
        for data, target in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(F.log_softmax(model(data), -1), target)
            loss.backward()
            optimizer.step()
        scheduler.step()

if __name__ == "__main__":
    main()
"""

HEALTHY["imagenet.py"] = """
import argparse
import torch

parser = argparse.ArgumentParser(description="ImageNet")
parser.add_argument("-a", "--arch", default="resnet18")
parser.add_argument("--epochs", default=90, type=int)
parser.add_argument("-b", "--batch-size", default=256, type=int)
parser.add_argument("--lr", "--learning-rate", default=0.1, type=float, dest="lr")
parser.add_argument("--momentum", default=0.9, type=float)
parser.add_argument("--wd", "--weight-decay", default=1e-4, type=float, dest="weight_decay")
args = parser.parse_args()
optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
"""

HEALTHY["gcn.py"] = """
import torch
from torch_geometric.nn import GCNConv

optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(200):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(data)[mask], data.y[mask])
    loss.backward()
    optimizer.step()
"""

HEALTHY["word_lm.py"] = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="LSTM")
parser.add_argument("--lr", type=float, default=20)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--bptt", type=int, default=35)
args = parser.parse_args()
torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
"""

HEALTHY["nanogpt.py"] = """
out_dir = 'out-shakespeare-char'
eval_interval = 250
always_save_checkpoint = False
dataset = 'shakespeare_char'
gradient_accumulation_steps = 1
batch_size = 64
block_size = 256
n_layer = 6
n_head = 6
n_embd = 384
dropout = 0.2
learning_rate = 1e-3
max_iters = 5000
lr_decay_iters = 5000
min_lr = 1e-4
beta2 = 0.99
warmup_iters = 100
grad_clip = 1.0
"""

HEALTHY["faster_rcnn_r50_fpn_1x_coco.py"] = """
_base_ = ['../_base_/models/faster-rcnn_r50_fpn.py', '../_base_/datasets/coco_detection.py']
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=12, val_interval=1)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type='MultiStepLR', begin=0, end=12, by_epoch=True, milestones=[8, 11], gamma=0.1),
]
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='SGD', lr=0.02, momentum=0.9, weight_decay=0.0001), clip_grad=None,
)
auto_scale_lr = dict(enable=False, base_batch_size=16)
"""

HEALTHY["old_mmdet.py"] = """
optimizer = dict(type='SGD', lr=0.02, momentum=0.9, weight_decay=0.0001)
optimizer_config = dict(grad_clip=None)
lr_config = dict(policy='step', warmup='linear', warmup_iters=500, warmup_ratio=0.001, step=[8, 11])
runner = dict(type='EpochBasedRunner', max_epochs=12)
fp16 = dict(loss_scale=512.)
data = dict(samples_per_gpu=2, workers_per_gpu=2)
"""

HEALTHY["lightning.yaml"] = """
seed_everything: 42
trainer:
  accelerator: gpu
  devices: 4
  strategy: ddp
  precision: 16-mixed
  max_epochs: 100
  gradient_clip_val: null
  accumulate_grad_batches: 1
  log_every_n_steps: 50
  check_val_every_n_epoch: 1
  callbacks:
    - class_path: lightning.pytorch.callbacks.ModelCheckpoint
      init_args: {monitor: val_loss, mode: min, save_top_k: 3}
model:
  class_path: project.ResNetClassifier
  init_args: {num_classes: 100, dropout: 0.1}
optimizer:
  class_path: torch.optim.AdamW
  init_args: {lr: 0.001, weight_decay: 0.05}
lr_scheduler:
  class_path: torch.optim.lr_scheduler.CosineAnnealingLR
  init_args: {T_max: 100, eta_min: 1.0e-06}
data:
  class_path: project.ImageData
  init_args: {batch_size: 128, num_workers: 8}
"""

HEALTHY["hydra_lightning.yaml"] = """
defaults: [_self_, {data: mnist}, {model: mnist}, {callbacks: default}]
task_name: train
tags: [dev]
train: true
test: true
ckpt_path: null
seed: null
trainer:
  _target_: lightning.pytorch.trainer.Trainer
  default_root_dir: ${paths.output_dir}
  min_epochs: 1
  max_epochs: 10
  accelerator: cpu
  devices: 1
  check_val_every_n_epoch: 1
  deterministic: false
optimizer: {_target_: torch.optim.Adam, _partial_: true, lr: 0.001, weight_decay: 0.0}
scheduler: {_target_: torch.optim.lr_scheduler.ReduceLROnPlateau, _partial_: true, mode: min, factor: 0.1, patience: 10}
"""

HEALTHY["llama_factory_lora.yaml"] = """
### model
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
trust_remote_code: true

### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all

### dataset
dataset: identity,alpaca_en_demo
template: llama3
cutoff_len: 2048
max_samples: 1000
overwrite_cache: true
preprocessing_num_workers: 16

### output
output_dir: saves/llama3-8b/lora/sft
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true

### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000

### eval
val_size: 0.1
per_device_eval_batch_size: 1
eval_strategy: steps
eval_steps: 500
"""

HEALTHY["llama_factory_fp16_lora.yaml"] = """
model_name_or_path: meta-llama/Llama-2-7b-hf
stage: sft
do_train: true
finetuning_type: lora
quantization_bit: 4
lora_target: q_proj,v_proj
dataset: alpaca_gpt4_en
template: default
cutoff_len: 1024
output_dir: saves/llama2
per_device_train_batch_size: 4
gradient_accumulation_steps: 4
lr_scheduler_type: cosine
logging_steps: 10
save_steps: 1000
learning_rate: 5e-5
num_train_epochs: 3.0
plot_loss: true
fp16: true
"""

HEALTHY["llama_factory_full.yaml"] = """
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
do_train: true
finetuning_type: full
deepspeed: examples/deepspeed/ds_z3_config.json
dataset: identity
template: qwen
cutoff_len: 2048
output_dir: saves/full
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
learning_rate: 1.0e-5
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
"""

HEALTHY["llama_factory_dpo.yaml"] = """
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: dpo
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
pref_beta: 0.1
pref_loss: sigmoid
dataset: dpo_en_demo
template: llama3
cutoff_len: 2048
output_dir: saves/dpo
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 5.0e-6
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
"""

HEALTHY["axolotl_qlora.yml"] = """
base_model: NousResearch/Llama-2-7b-hf
model_type: LlamaForCausalLM
tokenizer_type: LlamaTokenizer

load_in_8bit: false
load_in_4bit: true
strict: false

datasets:
  - path: mhenrichsen/alpaca_2k_test
    type: alpaca
dataset_prepared_path:
val_set_size: 0.05
output_dir: ./outputs/qlora-out

adapter: qlora
lora_model_dir:

sequence_len: 4096
sample_packing: true
pad_to_sequence_len: true

lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true

wandb_project:
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: paged_adamw_32bit
lr_scheduler: cosine
learning_rate: 0.0002

bf16: auto
tf32: false
gradient_checkpointing: true
logging_steps: 1
flash_attention: true
warmup_steps: 10
evals_per_epoch: 4
saves_per_epoch: 1
weight_decay: 0.0
special_tokens:
"""

HEALTHY["axolotl_full.yml"] = """
base_model: mistralai/Mistral-7B-v0.1
load_in_8bit: false
load_in_4bit: false
datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
val_set_size: 0.05
output_dir: ./out
adapter:
lora_model_dir:
lora_r:
lora_alpha:
sequence_len: 8192
sample_packing: true
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 4
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
learning_rate: 0.000005
train_on_inputs: false
bf16: auto
gradient_checkpointing: true
flash_attention: true
warmup_steps: 10
deepspeed: deepspeed_configs/zero2.json
"""

HEALTHY["trl_dpo.yaml"] = """
model_name_or_path: alignment-handbook/zephyr-7b-sft-full
torch_dtype: null
dataset_name: HuggingFaceH4/ultrafeedback_binarized
beta: 0.1
bf16: true
do_eval: true
eval_strategy: steps
eval_steps: 100
gradient_accumulation_steps: 4
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
learning_rate: 5.0e-7
log_level: info
logging_steps: 10
lr_scheduler_type: cosine
max_length: 1024
max_prompt_length: 512
num_train_epochs: 1
optim: adamw_torch
output_dir: data/zephyr-7b-dpo-full
per_device_train_batch_size: 8
save_strategy: steps
save_steps: 100
seed: 42
warmup_ratio: 0.1
"""

HEALTHY["grpo.py"] = """
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig(
    output_dir="grpo", learning_rate=1e-6, bf16=True, num_generations=8, max_prompt_length=512,
    max_completion_length=1024, per_device_train_batch_size=8, max_grad_norm=0.1, warmup_ratio=0.1, beta=0.0,
)
GRPOTrainer(model="Qwen/Qwen2-0.5B-Instruct", reward_funcs=reward, args=args, train_dataset=data).train()
"""

HEALTHY["ds_zero2.json"] = """
{
  "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
           "min_loss_scale": 1},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupLR",
                "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none", "pin_memory": true},
    "allgather_partitions": true, "allgather_bucket_size": 2e8, "overlap_comm": true, "reduce_scatter": true,
    "reduce_bucket_size": 2e8, "contiguous_gradients": true},
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false
}
"""

HEALTHY["ds_plain.json"] = """
{
  "train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
  "steps_per_print": 100, "gradient_clipping": 1.0, "prescale_gradients": false,
  "optimizer": {"type": "Adam", "params": {"lr": 0.00015, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupDecayLR",
    "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.00015, "warmup_num_steps": 2000, "total_num_steps": 100000}},
  "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12},
  "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}, "overlap_comm": true}
}
"""

HEALTHY["accelerate.yaml"] = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_sharding_strategy: FULL_SHARD
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
use_cpu: false
"""

HEALTHY["fairseq.sh"] = """
CUDA_VISIBLE_DEVICES=0 fairseq-train \\
    data-bin/iwslt14.tokenized.de-en \\
    --arch transformer_iwslt_de_en --share-decoder-input-output-embed \\
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \\
    --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000 \\
    --dropout 0.3 --weight-decay 0.0001 \\
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \\
    --max-tokens 4096 --fp16 --max-update 100000
"""

HEALTHY["megatron.sh"] = """
#!/bin/bash
GPT_ARGS="--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024
  --micro-batch-size 4 --global-batch-size 8 --lr 0.00015 --train-iters 500000 --lr-decay-iters 320000
  --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 --lr-warmup-fraction .01 --clip-grad 1.0 --fp16"
torchrun --nproc_per_node 8 pretrain_gpt.py $GPT_ARGS --save ckpt --load ckpt
"""

HEALTHY["espnet.yaml"] = """
encoder: conformer
encoder_conf: {output_size: 512, attention_heads: 8, linear_units: 2048, num_blocks: 12}
optim: adam
optim_conf: {lr: 10.0}
scheduler: noamlr
scheduler_conf: {model_size: 256, warmup_steps: 25000}
max_epoch: 50
accum_grad: 4
grad_clip: 5
use_amp: true
batch_type: numel
batch_bins: 16000000
"""

HEALTHY["whisper.py"] = """
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, WhisperForConditionalGeneration
model = WhisperForConditionalGeneration.from_pretrained("openai/whisper-small")
args = Seq2SeqTrainingArguments(
    output_dir="whisper", per_device_train_batch_size=16, learning_rate=1e-5, warmup_steps=500, max_steps=5000,
    gradient_checkpointing=True, fp16=True, eval_strategy="steps", predict_with_generate=True,
    generation_max_length=225, save_steps=1000, eval_steps=1000, logging_steps=25, load_best_model_at_end=True,
    metric_for_best_model="wer", greater_is_better=False,
)
Seq2SeqTrainer(args=args, model=model, train_dataset=train, eval_dataset=test, compute_metrics=compute_metrics).train()
"""

HEALTHY["prompt_tuning.py"] = """
from peft import PromptTuningConfig, get_peft_model
import torch
config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=8)
model = get_peft_model(AutoModelForCausalLM.from_pretrained("bigscience/bloomz-560m"), config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
num_epochs = 50
"""

HEALTHY["adafactor_t5.yaml"] = """
model_name_or_path: google/mt5-base
optim: adafactor
learning_rate: 1.0e-3
lr_scheduler_type: constant
per_device_train_batch_size: 8
gradient_accumulation_steps: 16
num_train_epochs: 10
max_source_length: 512
max_target_length: 128
output_dir: mt5
bf16: true
"""

HEALTHY["timm.yaml"] = """
model: resnet50
pretrained: false
epochs: 600
opt: lamb
lr: 0.005
sched: cosine
warmup_epochs: 5
warmup_lr: 1.0e-06
batch_size: 512
amp: true
bce_loss: true
mixup: 0.1
cutmix: 1.0
drop_path: 0.05
weight_decay: 0.01
"""

HEALTHY["ppo.yaml"] = """
CartPole-v1:
  n_envs: 8
  n_timesteps: !!float 1e5
  policy: MlpPolicy
  n_steps: 32
  batch_size: 256
  gae_lambda: 0.8
  gamma: 0.98
  n_epochs: 20
  ent_coef: 0.0
  learning_rate: lin_0.001
  clip_range: lin_0.2
"""

HEALTHY["yolo.yaml"] = """
task: detect
mode: train
model: yolov8n.yaml
data: coco128.yaml
epochs: 100
batch: 16
imgsz: 640
optimizer: SGD
lr0: 0.01
lrf: 0.01
momentum: 0.937
weight_decay: 0.0005
warmup_epochs: 3.0
warmup_momentum: 0.8
warmup_bias_lr: 0.1
amp: true
"""

HEALTHY["torchtitan.toml"] = """
[model]
name = "llama3"
flavor = "8B"
[optimizer]
name = "AdamW"
lr = 3e-4
eps = 1e-8
[lr_scheduler]
warmup_steps = 200
[training]
local_batch_size = 1
seq_len = 8192
max_norm = 1.0
steps = 1000
dataset = "c4"
"""

HEALTHY["gan.yaml"] = """
generator: {type: StyleGAN2, lr: 0.002, betas: [0.0, 0.99]}
discriminator: {type: StyleGAN2Disc, lr: 0.002}
total_iter: 800000
batch_size: 4
"""

HEALTHY["legacy_arguments.py"] = """
from transformers import Trainer, TrainingArguments, RobertaForMaskedLM, RobertaConfig
config = RobertaConfig(vocab_size=52_000, max_position_embeddings=514, num_attention_heads=12, num_hidden_layers=6)
model = RobertaForMaskedLM(config=config)
training_args = TrainingArguments(
    output_dir="./EsperBERTo", overwrite_output_dir=True, num_train_epochs=1, per_gpu_train_batch_size=64,
    save_steps=10_000, save_total_limit=2, prediction_loss_only=True, evaluation_strategy="no", no_cuda=False,
)
Trainer(model=model, args=training_args, data_collator=collator, train_dataset=dataset).train()
"""

HEALTHY["lightning_script.py"] = """
import lightning as L
import torch

class Lit(L.LightningModule):
    def training_step(self, batch, index):
        return torch.nn.functional.mse_loss(self(batch), batch)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

trainer = L.Trainer(max_epochs=5, precision="bf16-mixed", gradient_clip_val=0.5, accumulate_grad_batches=2, devices=1)
trainer.fit(Lit(), loader)
"""

HEALTHY["inference_8bit.py"] = """
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained("google/gemma-2b", load_in_8bit=True, torch_dtype=torch.float16)
print(model.generate(**inputs, max_new_tokens=64))
"""

HEALTHY["own_config.yaml"] = """
experiment: ablation-3
train_batch_sizes: [8, 16]
learning_rates: [1e-4, 3e-4]
eval_stepz: 3
network: {width: 256, depths: 4}
paths: {root: /data, outputs: /out}
loggin: verbose
"""

COMMANDS = (
    "python run_glue.py --model_name_or_path bert-base-cased --task_name mrpc --do_train --do_eval --max_seq_length 128 "
    "--per_device_train_batch_size 32 --learning_rate 2e-5 --num_train_epochs 3 --output_dir /tmp/mrpc",
    "torchrun --nproc_per_node 8 run_summarization.py --model_name_or_path google-t5/t5-small --do_train "
    '--dataset_name cnn_dailymail --dataset_config "3.0.0" --source_prefix "summarize: " --output_dir /tmp/t5 '
    "--per_device_train_batch_size=4 --overwrite_output_dir --predict_with_generate",
    "accelerate launch --mixed_precision fp16 --num_processes 2 train_text_to_image.py "
    "--pretrained_model_name_or_path CompVis/stable-diffusion-v1-4 --resolution=512 --train_batch_size=1 "
    "--gradient_accumulation_steps=4 --gradient_checkpointing --max_train_steps=15000 --learning_rate=1e-05 "
    '--max_grad_norm=1 --lr_scheduler="constant" --lr_warmup_steps=0',
    "deepspeed --num_gpus 4 train.py --deepspeed ds_config.json --fp16 --lr 1e-4",
    "fairseq-train data-bin --arch fconv_wmt_en_de --lr 0.5 --clip-norm 0.1 --dropout 0.2 --max-tokens 4000 --optimizer nag",
    "python train.py model=resnet optimizer.lr=0.1 trainer.max_epochs=90 data.batch_size=256",
    "litgpt finetune_lora microsoft/phi-2 --data JSON --train.epochs 3 --train.micro_batch_size 1 --precision bf16-true",
    "python -m torch.distributed.launch --nproc_per_node=8 main.py --model deit_small_patch16_224 --batch-size 256 "
    "--lr 5e-4 --warmup-epochs 5 --epochs 300 --clip-grad 1.0",
    "yolo detect train data=coco.yaml model=yolov8n.pt epochs=100 imgsz=640",
)  # fmt: skip
"""Launches that work; the scripts are not at hand."""
