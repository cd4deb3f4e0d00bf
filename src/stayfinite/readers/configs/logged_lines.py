"""Single log lines with a setting: argument tables, announcements of precision, model and devices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.literals import value_in_text
from stayfinite.readers.configs.scalars import number

_COLOURS = lazy_regex(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIX = lazy_regex(
    r"^\s*(?:"
    r"\[?(?:default)?\d*\]?:\s?(?=\s*\[)|\[rank\s?\d+\]:?\s*|\[\d+\]\s*:\s*|"
    r"\[\d{4}-\d\d-\d\d[^\]]*\]\s*|\d{2,4}[-/]\d\d[-/]\d{2,4}[ T][\d:.,]+\s*|\d\d:\d\d:\d\d\s+|"
    r"\[?(?:INFO|WARNING|DEBUG|ERROR)\b[^\]\s]*\]?:?\s*|\[[\w./\-]+\.py:\d+[^\]]*\]\s*|>>\s*|\|\s+|"
    r"-\s+(?:INFO|WARNING)\s+-\s*|[\w.]+ - (?:INFO|WARNING) - |(?:INFO|WARNING):[\w.]*:\s*|__main__ - )"
)


def cleaned(text: str) -> str:
    """Remove colors and the prefixes of loggers and ranks; keep the indentation after them."""
    text = _COLOURS.sub("", text).rstrip() if "\x1b" in text else text.rstrip()
    for _ in range(6):
        match = _PREFIX.match(text)
        if match is None or match.end() == 0:
            break
        text = text[match.end() :]
    return text


TABLE = lazy_regex(r"\s*([A-Za-z_][\w.\-]*)\s+\.{2,}\s?(\S.*)")
"""Megatron and DeepSpeed: `  fp16 ............... True`."""

_HUB = r"([A-Za-z0-9][\w.\-]*(?:/[A-Za-z0-9][\w.\-]*)?)"
_REPOSITORY = lazy_regex(r"models--([\w.\-]{1,200})/|huggingface\.co/([\w.\-]{1,100}(?:/[\w.\-]{1,100})?)/resolve/")
_LOADED = lazy_regex(
    r"loading (?:configuration|weights|file|model).{0,20}?\s([^\s'\"]+/)(?:config\.json|pytorch_model|model|tokenizer|"
    r"spiece\.model|vocab)",
    re.IGNORECASE,
)
_CHECKPOINT = lazy_regex(rf"model checkpoint at {_HUB}|_name_or_path['\"]?[:=]\s*['\"]?{_HUB}")
_PRECISION = lazy_regex(
    r"Using (?:native )?(?P<bits>16-?bit|bfloat16|bf16|half|fp16)(?: native)? "
    r"(?:Automatic Mixed Precision|precision|AMP)|"
    r"16-bits training: (?P<sixteen>True|False)|compute dtype: torch\.(?P<compute>\w+)|"
    r"Using (?P<backend>auto|cuda_amp|amp|apex|cpu_amp) half precision backend|AMP: checks (?P<amp>passed|failed)",
    re.IGNORECASE,
)
_DEVICES = lazy_regex(
    r"(?:training on|(?:distributed )?world[ _]size[:=]?|num(?:ber of)? gpus[:=]?|n_gpu[:=]?|available devices:)\s+"
    r"(\d{1,5})(?:\s*(?:gpus|devices))?\b|\b(\d{1,5}) GPUs? available",
    re.IGNORECASE,
)
_CARD = lazy_regex(
    r"\b((?:Tesla |NVIDIA |Quadro |GeForce )*"
    r"(?:(?:RTX|GTX) ?A?\d{3,4}(?: ?Ti| SUPER)?|[VPTKM](?:4|40|60|80|100S?)\b|A(?:10G?|16|30|40|100|6000)\b|"
    r"H(?:100|200|800|20)\b|B(?:100|200)\b|L(?:4|40S?)\b|MI\d{3}X?|TITAN \w+)"
    r"(?:[- ](?:PCIE|SXM\d?)\S*)?)"
)
_CARD_LINE = lazy_regex(r"gpu|nvidia|cuda|device|tesla|geforce", re.IGNORECASE)
_COUNTED = lazy_regex(
    r"\s*((?:Num|Number of|Total|Instantaneous|Gradient Accumulation|max)[A-Za-z ,.&()/-]{2,90}?)\s*[=:]\s*"
    r"([\d,._]+(?:e[+-]?\d+)?|None)\s*"
)
_TRAINABLE = lazy_regex(r"(?<!non-)(?<!non )trainable params:\s*([\d,]+)(?![\d.]|\s?[KMB]\b)", re.IGNORECASE)
_VERSIONS = lazy_regex(
    r"\s*-?\s*`?(transformers|accelerate|peft|trl|deepspeed|torch|pytorch|bitsandbytes|lightning|apex)`?"
    r"(?: version)?(?: \(GPU\?\))?\s?[:=]=?\s*v?(\d[\w.+]*)",
    re.IGNORECASE,
)
_VERSION_WORDS = lazy_regex(
    r"(?<![\w-])(transformers|accelerate|peft|trl|deepspeed|torch|pytorch|bitsandbytes|pytorch-lightning|lightning|"
    r"apex|cuda|flash-attn|xformers|unsloth|python)`?(?: version)?(?: |==|=| = |: |`: | v)v?(\d+\.\d[\w.+]*)",
    re.IGNORECASE,
)
_FORMATS = {
    "fp16": "fp16", "float16": "fp16", "half precision": "fp16", "half-precision": "fp16",
    "bf16": "bf16", "bfloat16": "bf16",
}  # fmt: skip
_FORMAT = "|".join(_FORMATS)
_SPOKEN = lazy_regex(
    r"(?<!without )(?<!not )(?<!n't )\b(?:with|in|using|uses?|used|enabl\w+|under|set|turn(?:ed)? on) "
    r"(?:the |native |apex )?"
    rf"(?:{_FORMAT})\b(?! (?:works?|is (?:fine|ok)|instead|off|disabled))|"
    rf"(?<!without )(?<!no )\b(?:{_FORMAT}) (?:training|setting|mode|enabled)\b"
)
"""A format that somebody says to train in: `I train with fp16`."""
_MOST_WIDTH = 2_000
_CLUES = (
    *(
        "precision",
        "16-bits",
        "fp16",
        "bf16",
        "float16",
        "dtype",
        "loading",
        "checkpoint",
        "name_or_path",
        "models--",
        "huggingface.co",
    ),
    *("gpu", "world", "devices", "nvidia", "cuda", "tesla", "geforce", "trainable", "version"),
    *("num", "total", "instantaneous", "accumulation", "max", "amp:", "=="),
)
"""Every announcement contains one of these; checking them is far cheaper than the patterns."""


def told_in_line(text: str) -> Iterator[tuple[str, Any]]:
    """Names and values that one line announces; nothing for nearly every line."""
    text = text[:_MOST_WIDTH]
    table = TABLE.fullmatch(text) if " .." in text else None
    if table:
        yield table.group(1), value_in_text(table.group(2))
        return
    lower = text.lower()
    if not any(clue in lower for clue in _CLUES):
        return
    precision = _PRECISION.search(text)
    if precision:
        yield from _precision(precision)
    elif _SPOKEN.search(lower) and len(named := {_FORMATS[each] for each in re.findall(_FORMAT, lower)}) == 1:
        yield named.pop(), True
    name = _model_name(text)
    if name:
        yield "model", name
    devices = _DEVICES.search(text)
    if devices:
        yield "gpus", int(devices.group(1) or devices.group(2))
    if _CARD_LINE.search(text):
        card = _CARD.search(text)
        if card:
            yield "gpu", card.group(1).strip()
    counted = _COUNTED.fullmatch(text)
    if counted:
        yield re.sub(r"\s*\(.*?\)", "", counted.group(1)).strip(), value_in_text(counted.group(2))
    trainable = _TRAINABLE.search(text)
    if trainable:
        yield "trainable params", number(trainable.group(1))
    version = _VERSIONS.match(text)
    if version:
        yield f"{version.group(1)} version", version.group(2)


def versions_in(text: str) -> Iterator[tuple[str, Any]]:
    """Versions named in a text: `torch 2.1.0, transformers 4.36.2`."""
    for match in _VERSION_WORDS.finditer(text):
        yield f"{match.group(1)} version", match.group(2)


def _precision(match: re.Match[str]) -> Iterator[tuple[str, Any]]:
    if match["bits"]:
        yield "precision", "bf16-mixed" if match["bits"].lower().startswith("b") else "16-mixed"
    elif match["sixteen"]:
        yield "fp16", match["sixteen"].lower() == "true"
    elif match["compute"]:
        yield "compute dtype", match["compute"]
    elif match["backend"]:
        yield "half_precision_backend", match["backend"]
    elif match["amp"]:
        yield "amp", match["amp"].lower().endswith("passed")


def _model_name(text: str) -> str:
    repository = _REPOSITORY.search(text)
    if repository:
        cached, named = repository.groups()
        return named or cached.replace("--", "/")
    loaded = _LOADED.search(text)
    if loaded:
        return loaded.group(1).rstrip("/")
    checkpoint = _CHECKPOINT.search(text)
    return (checkpoint.group(1) or checkpoint.group(2) or "").rstrip(".") if checkpoint else ""
