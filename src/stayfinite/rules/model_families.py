"""Model families known to overflow in fp16 because they were trained in bf16 or fp32.

Each entry says how its models are called. T5's feed-forward outliers are why transformers keeps its `wo` in fp32; the
others are bf16 pre-trainings whose fp16 failures are on record in public threads.
"""

from __future__ import annotations

import re
from functools import lru_cache

from stayfinite.core.lazy_regex import lazy_regex

_FAMILIES = {
    "T5": r"\b(?:u?mt5|byt5|(?:flan|code|long)-?_?t5|t5x?|madlad|t0pp|mt0|(?:flan-?)?ul2|switch-base)(?:[-_/. ]|\b)",
    "Pegasus": r"\bpegasus",
    "Gemma": r"\b(?:code)?(?:pali)?gemma",
    "GPT-Neo": r"\bgpt[-_ ]?neo(?!x)",
    "Qwen": r"\bqwen",
    "LLaMA": r"\b(?:code|tiny|open_?)?llama|\b(?:vicuna|alpaca|mixtral|mistral|zephyr|wizard(?:lm|coder|-vicuna)|koala|"
    r"guanaco|tulu|belle|ziya|nous-hermes|openhermes|solar-\d)",
    "DeepSeek": r"\bdeepseek",
    "Phi": r"\bphi[-_ ]?[1-4]",
    "ChatGLM": r"\b(?:chat)?glm",
    "Baichuan": r"\bbaichuan",
    "InternLM": r"\bintern(?:lm|vl)",
    "Yi": r"\byi-\d+b",
    "OLMo": r"\bolmo",
    "Falcon": r"\bfalcon",
    "Granite": r"\bgranite",
    "SDXL": r"\bsdxl\b|\bstable[-_ ]?diffusion[-_ ]?xl\b",
    "Stable Diffusion 2": r"\b(?:sd|stable[-_ ]?diffusion)[-_ ]?v?2(?:[-_.]1)?\b(?![-_. ]?(?:\.\d)?[-_ ]?base)",
    "bf16-trained": r"\b(?:llava|openvla|prismatic|bunny|cogvlm|minicpm|stablelm|smol(?:lm|vlm)|molmo|idefics|"
    r"starcoder2|nemotron|exaone|command-r|flux|wan2|hunyuan|sd3|stable-?diffusion-?3|cogvideo\w*)\b",
}
_PATTERNS = {family: lazy_regex(pattern, re.IGNORECASE) for family, pattern in _FAMILIES.items()}

SUREST = frozenset({"T5", "Pegasus", "Gemma", "GPT-Neo", "Qwen"})
"""Families with many recorded fp16 failures; the others have some."""


@lru_cache(maxsize=4096)  # every look at a run asks for all its settings
def family_of(text: str) -> str | None:
    """The family that a text names, if listed."""
    for family, pattern in _PATTERNS.items():
        if pattern.search(text):
            return family
    return None
