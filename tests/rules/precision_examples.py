"""Runs with a fault of precision, and runs that look alike and have none of it."""

from rules.example import Example

HEALTHY_TRAINER = "\n".join(
    f"{{'loss': {3.1 - 0.04 * i:.4f}, 'grad_norm': {1.2 + 0.01 * (i % 5):.3f}, "
    f"'learning_rate': {2e-5 - 1e-7 * i:.3e}, 'epoch': {i / 50:.2f}}}"
    for i in range(30)
)

LOST_FROM_THE_START = "\n".join(
    f"{{'loss': 0.0, 'grad_norm': nan, 'learning_rate': {3e-5 - 1e-6 * i:.2e}, 'epoch': {0.01 * (i + 1):.2f}}}"
    for i in range(6)
)

LOST_AFTER_ONE_UPDATE = (
    "step 1 | loss 4.2177 | grad_norm 2.31\nstep 2 | loss nan | grad_norm nan\nstep 3 | loss nan | grad_norm nan\n"
    "step 4 | loss nan | grad_norm nan\n"
)

EXAMPLES: dict[str, tuple[Example, Example]] = {
    "fp16-overflow": (
        Example(
            log="Epoch 0:  1%| | 5/900 [00:02<05:10, 2.9it/s, loss=nan, v_num=4]\n"
            "RuntimeError: value cannot be converted to type at::Half without overflow: -1e+09\n",
            config="model: custom encoder with additive attention masks\nprecision: 16-mixed\n",
        ),
        Example(log=HEALTHY_TRAINER, config="fp16: true\nmodel: bert-base-cased\n"),
    ),
    "fp16-overflow-model-family": (
        Example(
            log=LOST_FROM_THE_START,
            config="model_name_or_path: google/flan-t5-xl\nfp16: true\nlearning_rate: 3e-5\n",
        ),
        Example(
            log=LOST_FROM_THE_START,
            config=(
                "model_name_or_path: google/flan-t5-xl\nbf16: true\nfp16: false\nmax_length: 16\n"
                "assistant_only_loss: true\n"
            ),
        ),
    ),
    "double-fp16": (
        Example(
            log="  0%|          | 0/250 [00:00<?, ?it/s]\n    self.scaler.unscale_(optimizer)\n"
            "ValueError: Attempting to unscale FP16 gradients.\n",
            config="mixed_precision: fp16\nunet.to(accelerator.device, dtype=torch.float16)\n",
        ),
        Example(
            log=HEALTHY_TRAINER,
            config="from transformers import AutoModelForCausalLM, TrainingArguments\nimport torch\n"
            'model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float32)\n'
            'args = TrainingArguments("out", fp16=True)\n',
            config_name="train.py",
        ),
    ),
    "pure-fp16-weights": (
        Example(
            log=LOST_AFTER_ONE_UPDATE, config="model: resnet-ctc\ntorch_dtype: float16\noptimizer: AdamW\nlr: 1e-4\n"
        ),
        Example(
            log=(
                "step 1 | loss 4.2177 | grad_norm 2.31\nstep 2 | loss 4.1 | grad_norm 2.2\n"
                "step 3 | loss 3.9 | grad_norm 2.1\n"
            ),
            config="torch_dtype: float16\nuse_peft: true\nlora_r: 16\n",
        ),
    ),
    "fp16-underflow": (
        Example(
            log="\n".join(
                f"{{'loss': {2.31 - 0.0001 * (i % 3):.4f}, 'grad_norm': 0.0, 'learning_rate': 1e-4}}" for i in range(12)
            ),
            config="fp16:\n  enabled: true\n  loss_scale: 1\n",
            config_name="config.yaml",
            observed={"gradient.zero_share": 0.93, "worlds.fp32.zero_share": 0.02},
        ),
        Example(log=HEALTHY_TRAINER, config="fp16: true\nloss_scale: 0\n"),
    ),
    "loss-scale-collapse": (
        Example(
            log="".join(
                f"[2024-03-02 10:00:{i:02d},001] [INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank "
                f"0 Skipping step. Attempted loss scale: {2 ** (9 - i)}, reducing to {2 ** (8 - i)}\n"
                for i in range(9)
            )
            + "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n",
            config="deepspeed: ds_zero2.json\nmodel: opt-350m\n",
        ),
        Example(
            log="Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n"
            "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 16384.0\n"
            + "".join(f"iter {i}: loss {2.5 - 0.02 * i:.4f}, time 210.1ms\n" for i in range(20)),
            config="opt_level: O1\n",
        ),
    ),
    "bf16-lost-updates": (
        Example(
            log="\n".join(
                f"step {i} loss: {2.3030 + 0.0002 * (i % 3):.4f} grad_norm: 0.81 lr: 1.0e-06" for i in range(40)
            ),
            config="precision: bf16-true\nlearning_rate: 1e-6\noptimizer: AdamW\n",
            observed={"update.lost_share": 0.97},
        ),
        Example(log=HEALTHY_TRAINER, config="bf16: true\ntorch_dtype: bfloat16\nlearning_rate: 2e-5\n"),
    ),
    "bf16-unsupported": (
        Example(
            log='Traceback (most recent call last):\n  File "train.py", line 40, in <module>\n'
            "ValueError: Bfloat16 is only supported on "
            "GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute capability 7.5.\n",
            config="dtype: bfloat16\ngpu: Tesla T4\n",
        ),
        Example(log=HEALTHY_TRAINER, config="bf16: true\ngpu: A100\n"),
    ),
    "autocast-missing": (
        Example(
            log='  File "torch/nn/modules/linear.py", line 114, in forward\n'
            "    return F.linear(input, self.weight, self.bias)\n"
            "RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float\n",
            config="fp16: true\n",
        ),
        Example(
            log=(
                "RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the "
                "same\n"
            ),
            config="batch_size: 8\n",
        ),
    ),
    "quantized-weights": (
        Example(
            log=LOST_FROM_THE_START,
            config="model: facebook/opt-6.7b\nload_in_8bit: true\nstage: full fine-tuning\n",
        ),
        Example(log=HEALTHY_TRAINER, config="load_in_4bit: true\nlora_r: 8\nbnb_4bit_compute_dtype: bfloat16\n"),
    ),
    "adam-eps-underflow": (
        Example(
            log=LOST_AFTER_ONE_UPDATE,
            config="adam_epsilon: 1e-8\n",
            observed={"optimizer.state_dtype": "torch.float16", "optimizer.eps": 1e-8},
        ),
        Example(
            log=HEALTHY_TRAINER,
            config="adam_epsilon: 1e-8\nbf16: true\n",
            observed={"optimizer.state_dtype": "torch.float32", "optimizer.eps": 1e-8},
        ),
    ),
    "sdpa-kernel-bug": (
        Example(
            log="step 40 | loss 1.9120 | grad_norm 0.8812\nstep 41 | loss 1.9033 | grad_norm 0.9120\n"
            "step 42 | loss 1.8970 | grad_norm nan\nstep 43 | loss nan | grad_norm nan\n",
            config="attn_implementation: sdpa\nprecision: bf16\nmicro_batch_size: 4\n",
        ),
        Example(
            log="step 40 | loss 1.9120 | grad_norm 0.8812\nstep 41 | loss 1.9033 | grad_norm 0.9120\n"
            "step 42 | loss 1.8970 | grad_norm nan\nstep 43 | loss nan | grad_norm nan\n",
            config="attn_implementation: eager\nprecision: bf16\nmicro_batch_size: 4\n",
        ),
    ),
    "stale-master-weights": (
        Example(
            log=(
                "Loading checkpoint from step_9000\nstep: 9001 loss: 2.10\nstep: 9002 loss: 10.9\n"
                "step: 9003 loss: 10.8\nstep: 9004 loss: 10.8\n"
            ),
            config="deepspeed: zero1\nbf16: true\n",
            observed={"master.largest_difference": 0.8},
        ),
        Example(
            log=(
                "Loading checkpoint from step_9000\nstep: 9001 loss: 2.10\nstep: 9002 loss: 2.12\n"
                "step: 9003 loss: 2.09\nstep: 9004 loss: 2.11\n"
            ),
            config="deepspeed: zero1\nbf16: true\n",
            observed={"master.largest_difference": 0.002},
        ),
    ),
    "card-lacks-feature": (
        Example(observed={"plan.card_lacks": [("tf32: True, and the T4 has no TF32", "train.yaml:3")]}),
        Example(config="tf32: true\nattn_implementation: flash_attention_2\n"),
    ),
    "both-half-formats": (
        Example(log="ValueError: At most one of fp16 and bf16 can be True, but not both\n"),
        Example(config="bf16: true\nfp16_full_eval: true\n"),
    ),
    "scaler-missing": (
        Example(observed={"scaler.missing": True, "training.precision": "fp16"}),
        Example(observed={"scaler.missing": False, "training.precision": "fp16"}),
    ),
    "scaler-without-fp16": (
        Example(observed={"scaler.without_fp16": True, "training.precision": "bf16"}),
        Example(observed={"scaler.without_fp16": False, "training.precision": "bf16"}),
    ),
}

MEGATRON = (
    " iteration {step:8d}/   20000 | consumed samples: {samples:12d} | learning rate: 1.000E-04 | "
    "global batch size:   256 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {norm:.3f} | "
    "number of skipped iterations:   0 | number of nan iterations:   {nans} |"
)


def megatron(*losses: float) -> str:
    """A line of Megatron each 100 steps."""
    lines = []
    for i, loss in enumerate(losses, 1):
        nans = int(loss != loss)
        lines.append(MEGATRON.format(step=100 * i, samples=25600 * i, loss=loss, norm=loss if nans else 0.6, nans=nans))
    return "\n".join(lines)


NEVER_FINITE = "\n".join(f"step {i} | loss nan | grad_norm nan" for i in range(1, 5))
FALLING = [7.0 - 0.3 * i for i in range(12)]
LOST_LATER = [*FALLING, 9.1, float("nan"), float("nan")]
DELAYED = "--bf16 --fp8-format hybrid --fp8-amax-history-len {history} --fp8-amax-compute-algo {algorithm}\n"

EXAMPLES |= {
    "fp8-saturation": (
        Example(
            log="\n".join(f"step: {i}  loss: {x}  grad_norm: 1.2" for i, x in enumerate([11.2, 10.4, "nan", "nan"], 1)),
            config="model.converters: float8\nfloat8.recipe_name: tensorwise\nbf16: trains fine\n",
        ),
        Example(log=megatron(*FALLING), config="--bf16 --fp8-recipe tensorwise --fp8-format e4m3\n"),
    ),
    "fp8-stale-scale": (
        Example(log=megatron(*LOST_LATER), config=DELAYED.format(history=1, algorithm="most_recent")),
        Example(log=megatron(*FALLING), config=DELAYED.format(history=1, algorithm="most_recent")),
    ),
    "fp8-zero-amax": (
        Example(
            log=NEVER_FINITE,
            config="def to_fp8(x):\n    scale = 448.0 / x.abs().amax(-1, keepdim=True)\n"
            "    return (x * scale).to(torch.float8_e4m3fn), scale\n",
        ),
        Example(
            log=NEVER_FINITE,
            config="def to_fp8(x):\n    scale = 448.0 / x.abs().amax(-1, keepdim=True).clamp_min(1e-12)\n"
            "    return (x * scale).to(torch.float8_e4m3fn), scale\n",
        ),
    ),
    "fp8-sensitive-module": (
        Example(observed={"fp8.heads": ["lm_head"]}),
        Example(observed={"fp8.heads": [], "fp8.routers": []}),
    ),
    "fp8-unaligned-dims": (
        Example(
            log="    out = torch._scaled_mm(a, b, scale_a, scale_b)\n"
            "RuntimeError: Expected both dimensions of mat2 to be divisible by 16 but got torch.Size([768, 2])\n"
        ),
        Example(
            log="    x = x.view(b, heads, t, c // heads)\n"
            "AssertionError: embed_dim must be divisible by num_heads (768, 5)\n"
        ),
    ),
}
