"""Configs and shell scripts that work, of many frameworks: none of them may be warned of."""

CONFIGS: dict[str, str] = {}

CONFIGS["lightning.yaml"] = """
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

CONFIGS["hydra_lightning.yaml"] = """
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

CONFIGS["ds_zero2.json"] = """
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

CONFIGS["ds_plain.json"] = """
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

CONFIGS["accelerate.yaml"] = """
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

CONFIGS["fairseq.sh"] = """
CUDA_VISIBLE_DEVICES=0 fairseq-train \\
    data-bin/iwslt14.tokenized.de-en \\
    --arch transformer_iwslt_de_en --share-decoder-input-output-embed \\
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \\
    --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000 \\
    --dropout 0.3 --weight-decay 0.0001 \\
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \\
    --max-tokens 4096 --fp16 --max-update 100000
"""

CONFIGS["megatron.sh"] = """
#!/bin/bash
GPT_ARGS="--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024
  --micro-batch-size 4 --global-batch-size 8 --lr 0.00015 --train-iters 500000 --lr-decay-iters 320000
  --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 --lr-warmup-fraction .01 --clip-grad 1.0 --fp16"
torchrun --nproc_per_node 8 pretrain_gpt.py $GPT_ARGS --save ckpt --load ckpt
"""

CONFIGS["espnet.yaml"] = """
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

CONFIGS["timm.yaml"] = """
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

CONFIGS["ppo.yaml"] = """
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

CONFIGS["yolo.yaml"] = """
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

CONFIGS["torchtitan.toml"] = """
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

CONFIGS["gan.yaml"] = """
generator: {type: StyleGAN2, lr: 0.002, betas: [0.0, 0.99]}
discriminator: {type: StyleGAN2Disc, lr: 0.002}
total_iter: 800000
batch_size: 4
"""

CONFIGS["own_config.yaml"] = """
experiment: ablation-3
train_batch_sizes: [8, 16]
learning_rates: [1e-4, 3e-4]
eval_stepz: 3
network: {width: 256, depths: 4}
paths: {root: /data, outputs: /out}
loggin: verbose
"""
