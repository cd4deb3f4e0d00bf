"""The compute precision of a run and the dtype of its weights, from all spellings."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting, Settings
from stayfinite.rules.known import Known, is_on, mention, written

_HALF = lazy_regex(r"\b(?:fp16|float16|f16|half|16(?:-mixed)?|16-true|O[12])\b", re.IGNORECASE)
_BRAIN = lazy_regex(r"\b(?:bf16|bfloat16)(?:-mixed|-true)?\b", re.IGNORECASE)
_FULL = lazy_regex(r"\b(?:fp32|float32|32(?:-true)?|no|none|false|O0|tf32)\b", re.IGNORECASE)

SWITCHES = {
    "bf16": "bf16", "bf16_enabled": "bf16", "bfloat16_enabled": "bf16",
    "fp16": "fp16", "fp16_enabled": "fp16", "use_fp16": "fp16", "use_amp": "fp16", "amp": "fp16",
}  # fmt: skip
FORMATS = (
    "mixed_precision", "precision", "dtype", "train_dtype", "autocast_dtype", "compute_dtype", "opt_level",
    "fp16_opt_level", "amp_dtype",
)  # fmt: skip
WEIGHTS = ("torch_dtype", "from_pretrained_dtype", "model_dtype", "weights_dtype", "params_dtype")
TRAINED = "trained_dtype"
"""In which dtype a script has the weights when their training begins."""
_ELSEWHERE = lazy_regex(r"(?:router|kv_cache|rollout|fsdp_config_model|trained)_dtype$")
"""Dtypes of one layer, a cache, weights, or verl's sampler; not the compute precision."""

_SAID = lazy_regex(
    r"16[- ]?bit (?:native )?(?:automatic mixed )?precision|cuda_amp half precision|using fp16", re.IGNORECASE
)
_HALF_WORDS = (
    r"\b(?:mixed[- ]precision|train(?:ed|ing)? (?:in|with)|using|autocast|amp|apex)\b.{0,30}\b(?:fp16|float16|half)\b|"
    r"\bfp16\b.{0,20}\b(?:mixed|training|amp|autocast)\b|\bapex\b.{0,20}\bO[12]\b|"
    r"(?<![\w-])--(?:fp16|half|amp)\b(?!\s*[=:]?\s*(?:false|0))"
)  # fmt: skip
_BRAIN_WORDS = (
    r"\b(?:mixed[- ]precision|train(?:ed|ing)? (?:in|with)|using|autocast|amp)\b.{0,30}\b(?:bf16|bfloat16)\b|"
    r"(?<![\w-])--bf16\b(?!\s*[=:]?\s*(?:false|0))"
)
_HALF_WEIGHTS = (
    r"\.half\(\)|\bto\(torch\.(?:float16|half)\)|torch_dtype ?[=:] ?(?:torch\.)?(?:float16|half|fp16)|\bpure fp16\b|"
    r"\b(?:load(?:ed)?|weights|model|cast|unet|everything|parameters)\b.{0,40}\b(?:in|to|as|are|is)\b.{0,12}"
    r"\b(?:fp16|float16|half)\b|\b(?:weights?|model|param\w*)(?: dtype)? ?[:=] ?(?:torch\.)?(?:fp16|float16|half)\b"
)  # fmt: skip


def precision_of(settings: Settings, messages: Sequence[str]) -> Known | None:
    """The compute precision: fp16, bf16 or fp32."""
    for name, precision in SWITCHES.items():
        for setting in settings.all(name):
            value = setting.value.get("enabled", True) if isinstance(setting.value, dict) else setting.value
            if is_on(value) and not _negated(setting):
                return written(setting, precision)
    loaded = {setting.where for setting in settings.all(*WEIGHTS, TRAINED) if setting.line}
    for setting in settings.all(*FORMATS):
        if "from_pretrained" in setting.plain or "torch_dtype" in setting.plain:
            continue
        if setting.plain.endswith("override_linear_precision"):
            continue  # products that stay out of fp8
        if _ELSEWHERE.search(setting.plain):
            continue
        if "." not in setting.name and setting.where in loaded:
            continue  # `dtype = torch.float16`, used to load the weights
        if (known := _format_of(setting)) is not None:
            return known
    for pattern, precision in ((_BRAIN_WORDS, "bf16"), (_HALF_WORDS, "fp16")):
        if (found := mention(settings, pattern)) is not None:
            return Known(precision, found.where, found.text)
    for setting in settings.all("fp16", "use_fp16", "amp", "use_amp"):
        if is_on(setting.value) is False:
            return written(setting, "fp32")
    for text in messages:
        if _SAID.search(text):
            return Known("bf16" if "bfloat16" in text.lower() else "fp16", "", text)
    return None


def weights_of(settings: Settings) -> Known | None:
    """The dtype of the loaded weights."""
    for setting in settings.all(*WEIGHTS):
        if (known := _format_of(setting)) is not None:
            return known
    for setting in settings.all("model_half", "pure_fp16", "memory_efficient_fp16", "half"):
        if is_on(setting.value):
            return written(setting, "fp16")
    found = mention(settings, _HALF_WEIGHTS)
    return None if found is None else Known("fp16", found.where, found.text)


def _negated(setting: Setting) -> bool:
    return setting.plain.startswith("no_") or "_no_" in setting.plain


def _format_of(setting: Setting) -> Known | None:
    if setting.value is None and setting.plain.endswith("dtype"):
        return None  # left to the library, which follows the GPU or the checkpoint
    if setting.value is None and setting.plain.endswith("policy_precision"):
        return None  # a guard's setting: autocast is up to the loop, which may use fp16
    text = str(setting.value)
    for pattern, name in ((_BRAIN, "bf16"), (_HALF, "fp16"), (_FULL, "fp32")):
        if pattern.search(text):
            return written(setting, name)
    return None
