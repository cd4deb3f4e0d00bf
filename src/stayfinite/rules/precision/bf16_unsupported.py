"""bf16 is set on hardware that lacks it.

## What it means
The settings ask for bfloat16, and the card cannot compute in it: it needs NVIDIA Ampere (compute capability 8.0:
A100, A10, RTX 30) or newer, an AMD MI200 or newer, a TPU or a recent CPU. Frameworks refuse at start; where they do
not, torch emulates bf16 slowly or a kernel fails.

## Why it happens
Recipes are written on A100s and H100s. V100, T4, P100, RTX 20, GTX and older cards (Colab's and Kaggle's free ones
among them) have fp16 only. A CPU-only torch, or a CUDA that torch cannot see, leads to the same message.

## How to recognize it
- `ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with cuda>=11.0`
  (transformers).
- `bf16 mixed precision requires PyTorch >= 1.10 and a supported device` (accelerate).
- `Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute
  capability 7.5`.
- `Feature '.bf16' requires .target sm_80 or higher` (Triton, torch.compile), `CUBLAS_STATUS_NOT_SUPPORTED` with
  `CUDA_R_16BF`.

## How to fix it
fp32 is safe everywhere. fp16 is fast on these GPUs and safe for some models; those trained in bf16 (T5,
Gemma, Qwen, LLaMA; see SF102) do not, so watch the first steps.

- transformers: `bf16=False, fp16=True` (or both False), `tf32=False`; also `dtype=torch.float16` only for frozen
  weights.
- Lightning: `Trainer(precision="16-mixed")` or `"32-true"`.
- accelerate: `accelerate launch --mixed_precision fp16` or `no`.
- DeepSpeed: `"bf16": {"enabled": false}, "fp16": {"enabled": true}`; both files, the trainer's and DeepSpeed's, must
  agree.
- bitsandbytes: `bnb_4bit_compute_dtype=torch.float16` (or `torch.float32`).
- In code: `torch.cuda.is_bf16_supported(including_emulation=False)` before choosing.

## When it is a false alarm
On an Ampere card the message means that torch does not see it: look at `torch.cuda.is_available()`, the driver and
the build.
"""

import re

from stayfinite.rules.facts import Facts
from stayfinite.rules.precision.half_range import WITHOUT_BF16
from stayfinite.rules.rule import FAIR, PROOF, STRONG, Clue, Clues, Rule, quote

REFUSALS = (
    r"doesn'?t support bf16|bf16.{0,60}(?:is|are) not supported|bf16 mixed precision (?:requires|with)|"
    r"bfloat16 is (?:only|not) supported|(?:does not|doesn'?t|do not|don'?t|cannot) support (?:bf16|bfloat16)|"
    r"\.bf16.{0,30}requires \.target sm_80|bf16 requires|bfloat16 requires|type bf16 is not supported|no bf16 support"
)
WEAKER = r"not implemented for 'BFloat16'|got unsupported ScalarType BFloat16|CUDA_R_16BF"


def judge(facts: Facts) -> Clues:
    """Clues: the library's error is proof; bf16 on an old GPU is a risk."""
    refusal = facts.said(REFUSALS)
    yield from quote(refusal, PROOF)
    weaker = facts.said(WEAKER)
    gpu = facts.context.gpu
    old = gpu is not None and re.search(WITHOUT_BF16, gpu.text, re.IGNORECASE) is not None
    if gpu is not None and old and _asked(facts):
        yield Clue(
            f"bf16 is set on a GPU without it ({gpu.text.strip()})",
            FAIR if refusal or weaker else STRONG,
            gpu.where,
            risk=True,
        )
    family, unknown = facts.context.family, facts.context.precision is None and facts.context.weights is None
    if gpu is not None and old and unknown and family is not None and facts.symptoms.bad_losses:
        text = f"{family.value} models use bf16 by default, but this GPU has none ({gpu.text.strip()})"
        yield Clue(text, 3.0, gpu.where, risk=True)


def _asked(facts: Facts) -> bool:
    return any(
        known is not None and known.value == "bf16" for known in (facts.context.precision, facts.context.weights)
    )


RULE = Rule(
    code="SF108",
    fix="bf16=False; train in fp32, or in fp16 (fp16=True) if it is safe for the model",
    beats=("environment", "nan-loss", "upstream-bug"),
    plans={"plan.card_without_bf16": PROOF},
)
