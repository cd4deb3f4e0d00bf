"""Configs and launch scripts of less usual frameworks that work: none of them may be warned of."""

LESS_USUAL: dict[str, str] = {}

LESS_USUAL["torchtune.yaml"] = """
output_dir: /tmp/torchtune/llama3_1_8B/lora_single_device
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 8
  lora_alpha: 16
  lora_dropout: 0.0
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: null
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  model_type: LLAMA3
resume_from_checkpoint: False
dataset:
  _component_: torchtune.datasets.alpaca_cleaned_dataset
  packed: False
seed: null
shuffle: True
batch_size: 2
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  weight_decay: 0.01
  lr: 3e-4
lr_scheduler:
  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup
  num_warmup_steps: 100
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
epochs: 1
max_steps_per_epoch: null
gradient_accumulation_steps: 8
clip_grad_norm: null
compile: False
device: cuda
dtype: bf16
enable_activation_checkpointing: True
enable_activation_offloading: False
"""

LESS_USUAL["nemo.yaml"] = """
name: &name "Conformer-CTC-BPE"
model:
  sample_rate: 16000
  train_ds:
    batch_size: 16
    shuffle: true
    max_duration: 16.7
  encoder:
    _target_: nemo.collections.asr.modules.ConformerEncoder
    n_layers: 18
    d_model: 512
    dropout: 0.1
  optim:
    name: adamw
    lr: 2.0
    betas: [0.9, 0.98]
    weight_decay: 1e-3
    sched:
      name: NoamAnnealing
      d_model: ${model.encoder.d_model}
      warmup_steps: 10000
      warmup_ratio: null
      min_lr: 1e-6
trainer:
  devices: -1
  num_nodes: 1
  max_epochs: 1000
  max_steps: -1
  val_check_interval: 1.0
  accelerator: auto
  strategy: ddp
  accumulate_grad_batches: 1
  gradient_clip_val: 0.0
  precision: 32
  log_every_n_steps: 10
  enable_progress_bar: True
  num_sanity_val_steps: 0
  check_val_every_n_epoch: 1
  sync_batchnorm: true
  enable_checkpointing: False
  logger: false
  benchmark: false
"""

LESS_USUAL["opennmt.yaml"] = """
save_model: run/model
src_vocab: run/example.vocab.src
world_size: 1
gpu_ranks: [0]
batch_type: "tokens"
batch_size: 4096
max_generator_batches: 2
accum_count: [4]
model_dtype: "fp16"
optim: "adam"
learning_rate: 2
warmup_steps: 8000
decay_method: "noam"
adam_beta2: 0.998
max_grad_norm: 0
label_smoothing: 0.1
param_init: 0
param_init_glorot: true
encoder_type: transformer
decoder_type: transformer
position_encoding: true
train_steps: 100000
"""

LESS_USUAL["detectron.yaml"] = """
_BASE_: "../Base-RCNN-FPN.yaml"
MODEL:
  WEIGHTS: "detectron2://ImageNetPretrained/MSRA/R-50.pkl"
  MASK_ON: True
  RESNETS:
    DEPTH: 50
SOLVER:
  IMS_PER_BATCH: 16
  BASE_LR: 0.02
  STEPS: (60000, 80000)
  MAX_ITER: 90000
  WARMUP_ITERS: 1000
  CLIP_GRADIENTS:
    ENABLED: False
INPUT:
  MIN_SIZE_TRAIN: (640, 672, 704)
"""

LESS_USUAL["swift.sh"] = """
CUDA_VISIBLE_DEVICES=0 \\
swift sft \\
    --model Qwen/Qwen2.5-7B-Instruct \\
    --train_type lora \\
    --dataset 'AI-ModelScope/alpaca-gpt4-data-zh#500' \\
    --torch_dtype bfloat16 \\
    --num_train_epochs 1 \\
    --per_device_train_batch_size 1 \\
    --learning_rate 1e-4 \\
    --lora_rank 8 \\
    --lora_alpha 32 \\
    --target_modules all-linear \\
    --gradient_accumulation_steps 16 \\
    --eval_steps 50 --save_steps 50 --save_total_limit 2 --logging_steps 5 \\
    --max_length 2048 --output_dir output --warmup_ratio 0.05 --dataloader_num_workers 4
"""

LESS_USUAL["open_clip.sh"] = """
torchrun --nproc_per_node 4 -m open_clip_train.main \\
    --train-data '/data/cc12m/cc12m-train-{0000..2175}.tar' \\
    --train-num-samples 10968539 --dataset-type webdataset --batch-size 320 --precision amp --workers 4 \\
    --lr 5e-4 --warmup 2000 --epochs 32 --wd 0.2 --model ViT-B-32
"""

LESS_USUAL["kohya.toml"] = """
pretrained_model_name_or_path = "runwayml/stable-diffusion-v1-5"
train_data_dir = "./train"
resolution = "512,512"
output_dir = "./out"
network_module = "networks.lora"
network_dim = 32
network_alpha = 16
train_batch_size = 2
max_train_epochs = 10
learning_rate = 1e-4
unet_lr = 1e-4
text_encoder_lr = 1e-5
lr_scheduler = "cosine_with_restarts"
lr_warmup_steps = 0
optimizer_type = "AdamW8bit"
mixed_precision = "fp16"
save_precision = "fp16"
gradient_checkpointing = true
xformers = true
clip_skip = 2
prior_loss_weight = 1.0
"""

LESS_USUAL["prodigy.toml"] = """
optimizer_type = "Prodigy"
learning_rate = 1.0
mixed_precision = "bf16"
max_train_epochs = 10
network_module = "networks.lora"
"""

LESS_USUAL["gptneox.yml"] = """
{
  "pipe-parallel-size": 1,
  "num-layers": 12, "hidden-size": 768, "seq-length": 2048, "max-position-embeddings": 2048,
  "pos-emb": "rotary",
  "optimizer": {"type": "Adam", "params": {"lr": 0.0006, "betas": [0.9, 0.95], "eps": 1.0e-8}},
  "min_lr": 0.00006,
  "zero_optimization": {"stage": 1, "allgather_partitions": True,
    "allgather_bucket_size": 500000000, "overlap_comm": True, "reduce_scatter": True,
    "reduce_bucket_size": 500000000, "contiguous_gradients": True},
  "train_micro_batch_size_per_gpu": 4,
  "gas": 1,
  "data-impl": "mmap",
  "checkpoint-activations": true,
  "gradient_clipping": 1.0,
  "weight-decay": 0.1,
  "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
  "train-iters": 320000, "lr-decay-iters": 320000, "lr-decay-style": "cosine", "warmup": 0.01,
  "log-interval": 100, "steps_per_print": 10, "wall_clock_breakdown": true
}
"""

LESS_USUAL["alpaca.sh"] = """
torchrun --nproc_per_node=4 --master_port=1234 train.py \\
    --model_name_or_path huggyllama/llama-7b \\
    --data_path ./alpaca_data.json --bf16 True --output_dir out \\
    --num_train_epochs 3 --per_device_train_batch_size 4 --per_device_eval_batch_size 4 \\
    --gradient_accumulation_steps 8 \\
    --evaluation_strategy "no" --save_strategy "steps" --save_steps 2000 --save_total_limit 1 --learning_rate 2e-5 \\
    --weight_decay 0. --warmup_ratio 0.03 --lr_scheduler_type "cosine" --logging_steps 1 \\
    --fsdp "full_shard auto_wrap" --fsdp_transformer_layer_cls_to_wrap 'LlamaDecoderLayer' --tf32 True
"""

LESS_USUAL["llava.sh"] = """
deepspeed llava/train/train_mem.py --lora_enable True --lora_r 128 --lora_alpha 256 --mm_projector_lr 2e-5 \\
    --deepspeed ./scripts/zero3.json --model_name_or_path lmsys/vicuna-13b-v1.5 --version v1 \\
    --vision_tower openai/clip-vit-large-patch14-336 --bf16 True --output_dir ./c --num_train_epochs 1 \\
    --per_device_train_batch_size 16 --evaluation_strategy "no" --save_strategy "steps" --save_steps 50000 \\
    --learning_rate 2e-4 --weight_decay 0. --warmup_ratio 0.03 --lr_scheduler_type "cosine" --tf32 True \\
    --model_max_length 2048 --gradient_checkpointing True --dataloader_num_workers 4 --lazy_preprocess True
"""

LESS_USUAL["drawn.py"] = """
parser = argparse.ArgumentParser()
parser.add_argument("--visdom_lr", type=int, default=0, help="draw the learning rate")
args = parser.parse_args()
optimizer = Noam(torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9), factor=1.0, warmup=4000)
"""

LESS_USUAL["espnet.yaml"] = """
opt: adam
transformer-lr: 6.0
transformer-warmup-steps: 250
model-module: "espnet.nets.pytorch_backend.e2e_asr_transformer:E2E"
load_pretrained_model: "model.loss.best"
"""
