"""`stayfinite check` on plans of training in fp8: planted faults are told, good recipes are left in peace."""

from __future__ import annotations

import pytest

from stayfinite.inspection.files.inspecting import inspect_files

TORCHTITAN = """
[model]
name = "llama3"
converters = [{converters}]
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
local_batch_size = 1
seq_len = {length}
max_norm = 1.0
steps = 1000
[quantize.linear.float8]
recipe_name = "{recipe}"
enable_fsdp_float8_all_gather = {gather}
filter_fqns = [{kept}]
"""
TITAN = {"converters": '"float8"', "length": 8192, "recipe": "tensorwise", "gather": "true", "kept": '"output"'}
ACCELERATE = """
distributed_type: MULTI_GPU
mixed_precision: {precision}
fp8_config:
  backend: TE
  amax_compute_algo: max
  amax_history_len: {history}
  fp8_format: HYBRID
  interval: {interval}
  margin: 0
  override_linear_precision: [false, false, false]
num_processes: 2
"""
LAUNCHED = {"precision": "fp8", "history": 1024, "interval": 1}
ENGINE = """
import torch
import transformer_engine.pytorch as te
from transformer_engine.common import recipe

in_features = {width}
model = te.Linear(in_features, 3072, bias=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
fp8_recipe = recipe.DelayedScaling(fp8_format=recipe.Format.HYBRID, amax_history_len={history}, amax_compute_algo="max")
for x in loader:
    with te.fp8_autocast(enabled=True, fp8_recipe=fp8_recipe):
        loss = model(x).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""
TORCHAO = """
import torch
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

model = build()
config = Float8LinearConfig.from_recipe_name("rowwise")
convert_to_float8_training(model, config=config{chosen})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for x in loader:
    loss = model(x)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""
MEGATRON = (
    "torchrun pretrain_gpt.py --num-layers 32 --hidden-size {width} --ffn-hidden-size 14336 --seq-length {length} "
    "--micro-batch-size 1 --lr 3e-4 --clip-grad 1.0 --bf16 --train-iters 1000 --fp8-format hybrid {more}"
)
MEGA = {"width": 4096, "length": 4096, "more": "--fp8-amax-history-len 1024 --fp8-amax-compute-algo max"}
NEMO = """
trainer:
  precision: bf16
model:
  hidden_size: 4096
  transformer_engine: True
  fp8: {on}
  fp8_hybrid: True
  fp8_amax_history_len: {history}
  fp8_amax_compute_algo: max
  optim: {{name: distributed_fused_adam, lr: 1e-4}}
"""
AXOLOTL = """
base_model: Qwen/Qwen3-8B
fp8: true
fp8_enable_fsdp_float8_all_gather: true
micro_batch_size: 2
sequence_len: 4096
learning_rate: 2e-5
optimizer: adamw_torch_fused
num_epochs: 1
"""


def found_in(tmp_path, name, text, gpu="H100"):
    path = tmp_path / name
    path.write_text(text)
    return {finding.cause: finding.severity for finding in inspect_files([str(path)], gpu=gpu).findings}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("titan.toml", TORCHTITAN.format_map(TITAN)),
        ("titan.toml", TORCHTITAN.format_map(TITAN | {"recipe": "rowwise", "gather": "false", "kept": '"lm_head"'})),
        ("titan.toml", TORCHTITAN.format_map(TITAN | {"converters": "", "kept": "", "length": 1000})),
        ("accelerate.yaml", ACCELERATE.format_map(LAUNCHED)),
        ("accelerate.yaml", ACCELERATE.format_map(LAUNCHED | {"precision": "bf16", "history": 1, "interval": 8})),
        ("engine.py", ENGINE.format(width=768, history=16)),
        ("ao.py", TORCHAO.format(chosen=", module_filter_fn=lambda m, name: name != 'lm_head'")),
        ("run.sh", MEGATRON.format_map(MEGA)),
        ("run.sh", MEGATRON.format_map(MEGA | {"more": "--fp8-recipe tensorwise"})),
        ("nemo.yaml", NEMO.format(on=True, history=1024)),
        ("nemo.yaml", NEMO.format(on=False, history=1)),
        ("axolotl.yaml", AXOLOTL),
    ],
)
def test_a_good_recipe_of_fp8_is_left_in_peace(tmp_path, name, text):
    assert found_in(tmp_path, name, text) == {}


@pytest.mark.parametrize(
    ("name", "text", "cause", "severity"),
    [
        ("titan.toml", TORCHTITAN.format_map(TITAN | {"kept": ""}), "fp8-sensitive-module", "warning"),
        ("titan.toml", TORCHTITAN.format_map(TITAN | {"length": 1000}), "fp8-unaligned-dims", "error"),
        ("titan.toml", TORCHTITAN.format_map(TITAN | {"recipe": "rowwise"}), "config-contradiction", "error"),
        ("accelerate.yaml", ACCELERATE.format_map(LAUNCHED | {"history": 1}), "fp8-stale-scale", "warning"),
        ("accelerate.yaml", ACCELERATE.format_map(LAUNCHED | {"interval": 4}), "fp8-stale-scale", "warning"),
        ("engine.py", ENGINE.format(width=767, history=16), "fp8-unaligned-dims", "error"),
        ("engine.py", ENGINE.format(width=768, history=1), "fp8-stale-scale", "warning"),
        ("ao.py", TORCHAO.format(chosen=""), "fp8-sensitive-module", "warning"),
        ("run.sh", MEGATRON.format_map(MEGA | {"width": 4100}), "fp8-unaligned-dims", "error"),
        ("run.sh", MEGATRON.format_map(MEGA | {"more": ""}), "fp8-stale-scale", "warning"),
        ("run.sh", MEGATRON.format_map(MEGA | {"more": "--fp8-recipe mxfp8"}), "card-lacks-feature", "error"),
        ("nemo.yaml", NEMO.format(on=True, history=1), "fp8-stale-scale", "warning"),
    ],
)
def test_a_planted_fault_of_fp8_is_told(tmp_path, name, text, cause, severity):
    assert found_in(tmp_path, name, text) == {cause: severity}


@pytest.mark.parametrize("gpu", ["A100", "T4", "RTX 3090"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("titan.toml", TORCHTITAN.format_map(TITAN)),
        ("accelerate.yaml", ACCELERATE.format_map(LAUNCHED)),
        ("engine.py", ENGINE.format(width=768, history=16)),
        ("run.sh", MEGATRON.format_map(MEGA)),
    ],
)
def test_a_card_without_fp8_is_told_whoever_asks_for_it(tmp_path, name, text, gpu):
    assert found_in(tmp_path, name, text, gpu).get("card-lacks-feature") == "error"
