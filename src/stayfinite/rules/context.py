"""The run's setup: model, precision, optimizer, adapters, hardware, independent of the framework."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stayfinite.core.settings import Settings
from stayfinite.rules import model_families
from stayfinite.rules.fp8_settings import EightBits, eight_bits_of
from stayfinite.rules.known import Known, first_number, first_text, mention, switched_on, written
from stayfinite.rules.precision_settings import precision_of, weights_of

LR = ("learning_rate", "lr", "max_lr", "base_lr")
OPTIMIZER = ("optim", "optimizer", "optimizer_type", "optimizer_name")
WARMUP = ("warmup_steps", "warmup_ratio", "warmup_iters", "warmup_updates", "num_warmup_steps", "warmup")
CLIP = (
    "max_grad_norm", "gradient_clip_val", "clip_norm", "gradient_clipping", "clip_grad", "grad_clip", "clip_grad_norm",
    "max_norm",
)  # fmt: skip
CHECKPOINTING = (
    "gradient_checkpointing", "use_gradient_checkpointing", "activation_checkpointing", "gradient_checkpointing_enable",
)  # fmt: skip
MODEL = (
    "model_name_or_path", "pretrained_model_name_or_path", "model_name", "model_id", "base_model", "pretrained_model",
    "from_pretrained_name", "model_type", "checkpoint", "model_checkpoint", "arch", "model_component", "model", "llm",
)  # fmt: skip
ADAPTERS = (
    "lora_r", "lora_rank", "lora_alpha", "use_lora", "use_peft", "lora_target", "lora_target_modules", "qlora", "lora",
    "peft_type",
)  # fmt: skip
QUANTIZED = {"load_in_8bit": "int8", "load_in_4bit": "int4", "use_4bit": "int4", "use_8bit": "int8"}
ATTENTION = (
    "attn_implementation", "attention_implementation", "attn_impl", "flash_attn", "use_flash_attention_2",
    "attention_backend",
)  # fmt: skip
GPU = (
    r"\b(?:V100|T4|P100|K80|GTX ?\d+\w*|RTX ?\d+\w*|A10G?|A100|A6000|H100|H200|L4|L40S?|2080 ?Ti|3090|4090|MI\d+\w*|"
    r"TPU|MPS)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The known setup of a run; None is unknown."""

    precision: Known | None = None
    """Compute precision: fp16, bf16, fp32. fp16 means autocast or a framework's fp16 mode."""
    weights: Known | None = None
    """Dtype of the loaded weights: fp16, bf16, fp32."""
    model: Known | None = None
    """The model name as given."""
    family: Known | None = None
    """The model family, if it is known to fail in fp16: `T5`, `Gemma`, ..."""
    lr: Known | None = None
    optimizer: Known | None = None
    warmup: Known | None = None
    """Steps, or a share of training; 0 if disabled."""
    clip: Known | None = None
    """Largest gradient norm; 0 if clipping is disabled."""
    adapters: Known | None = None
    """LoRA or similar."""
    quantized: Known | None = None
    """The base is loaded as int8 or int4."""
    checkpointing: Known | None = None
    """Gradient checkpointing is on."""
    attention: Known | None = None
    """The attention implementation: eager, sdpa, flash_attention_2, ..."""
    gpu: Known | None = None
    deepspeed: Known | None = None
    """The text that mentions it."""
    eight_bits: EightBits | None = None
    """fp8 matrix products, by torchao, Transformer Engine or a framework on top of them."""

    @property
    def half(self) -> Known | None:
        """Where fp16 is used, for computation or weights."""
        for known in (self.precision, self.weights):
            if known is not None and known.value == "fp16":
                return known
        return None

    @property
    def not_half(self) -> Known | None:
        """What shows that fp16 is not used."""
        if self.half is None and self.precision is not None and self.precision.value in ("bf16", "fp32"):
            return self.precision
        return None


def understand(settings: Settings, messages: Sequence[str] = ()) -> Context:
    """Read the setup from settings and log messages."""
    return Context(
        precision=precision_of(settings, messages),
        weights=weights_of(settings),
        model=_model(settings),
        family=_family(settings, messages),
        lr=first_number(settings, *LR),
        optimizer=first_text(settings, *OPTIMIZER),
        warmup=first_number(settings, *WARMUP),
        clip=first_number(settings, *CLIP) or _clip_off(settings),
        adapters=switched_on(settings, *ADAPTERS)
        or mention(settings, r"(?:\b|_)q?lora(?:\b|_)|\bpeft\b|\badapters?\b"),
        quantized=_quantized(settings),
        checkpointing=switched_on(settings, *CHECKPOINTING),
        attention=_attention(settings),
        gpu=mention(settings, GPU),
        deepspeed=mention(settings, r"deepspeed|\bzero[_ -]?(?:stage)?[_ -]?[0-3]\b|zero_optimization"),
        eight_bits=eight_bits_of(settings, messages),
    )


def _model(settings: Settings) -> Known | None:
    setting = settings.find(*MODEL)
    return written(setting, setting.value) if setting is not None and isinstance(setting.value, str) else None


def _family(settings: Settings, messages: Sequence[str]) -> Known | None:
    model = _model(settings)
    if model is not None and (family := model_families.family_of(str(model.value))) is not None:
        return Known(family, model.where, model.text)
    for where, text in settings.texts():
        if (family := model_families.family_of(text)) is not None:
            return Known(family, where, text)
    for text in messages:
        if (family := model_families.family_of(text)) is not None:
            return Known(family, "", text)
    return None


def _quantized(settings: Settings) -> Known | None:
    for name, bits in QUANTIZED.items():
        if (known := switched_on(settings, name)) is not None:
            return Known(bits, known.where, known.text)
    # An 8-bit optimizer does not quantize the weights.
    found = mention(
        settings, r"(?<!adam_)(?<!adamw_)\b(?:int8|8[- ]?bit|int4|4[- ]?bit|nf4|qlora|gptq|awq)\b(?! ?adam| ?optim)"
    )
    return (
        None
        if found is None
        else Known(
            "int4" if re.search(r"4|qlora", str(found.value), re.IGNORECASE) else "int8", found.where, found.text
        )
    )


def _attention(settings: Settings) -> Known | None:
    if (known := switched_on(settings, *ATTENTION)) is not None:
        named = isinstance(known.value, str) and known.value.lower() not in ("true", "1", "yes")
        return Known(str(known.value).lower() if named else "flash_attention_2", known.where, known.text)
    found = mention(settings, r"\b(?:sdpa|flash[- _]?att\w*|xformers|eager attention|memory[- ]efficient attention)\b")
    return None if found is None else Known(str(found.value).lower().split(" ")[0], found.where, found.text)


def _clip_off(settings: Settings) -> Known | None:
    """A `clip` of 0; another value may be that of anything."""
    found = first_number(settings, "clip")
    return found if found is not None and found.value == 0 else None
