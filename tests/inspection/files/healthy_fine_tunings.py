"""Configs that fine-tune language models and work: none of them may be warned of."""

FINE_TUNINGS: dict[str, str] = {}

FINE_TUNINGS["llama_factory_lora.yaml"] = """
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

FINE_TUNINGS["llama_factory_fp16_lora.yaml"] = """
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

FINE_TUNINGS["llama_factory_full.yaml"] = """
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

FINE_TUNINGS["llama_factory_dpo.yaml"] = """
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

FINE_TUNINGS["axolotl_qlora.yml"] = """
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

FINE_TUNINGS["axolotl_full.yml"] = """
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

FINE_TUNINGS["trl_dpo.yaml"] = """
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

FINE_TUNINGS["adafactor_t5.yaml"] = """
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
