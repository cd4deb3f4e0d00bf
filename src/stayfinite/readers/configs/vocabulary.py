"""Tell by name what is a measurement, what is a setting, and what is a credential, which reports must not repeat."""

from __future__ import annotations

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting, Settings
from stayfinite.readers.configs.tree import Node

_MEASURED = lazy_regex(
    r"(?:.*[_/ ])?(?:"
    r"loss|losses|loss_(?!scal|type|fn|func|weight)\w+|grad_?norm|gnorm|perplexity|ppl|accuracy|acc|bleu|chrf\S*|"
    r"rouge\S*|f1|wer|cer|reward\S*|entropy|kl|\w*score|auc|m?iou|m?ap|psnr|ssim|mae|r?mse|r2|"
    r"runtime|\w*_per_second|epoch|iter|iteration|step|steps_?done|num_updates|total_flos|it/s|s/it|elapsed|eta|time|"
    r"memory|mfu|tps|wps|ups|throughput|tokens_seen|num_tokens)",
    re.IGNORECASE,
)
"""Names of measurements, which are not settings when followed by a number."""

_TOLD = lazy_regex(
    r"(?:.*[._/ ])?(?:use_?)?(?:fp16|bf16|fp32|fp8|tf32|half|amp|(?:mixed_)?precision|(?:\w+_)?dtype|(?:base_|peak_|"
    r"max_|min_)?learning_?rate|optim\w*|\w*batch\w*|warmup\w*|weight_decay|\w*clip\w*|max_grad_norm|gradient_\w+|"
    r"seed|model\w*|tokenizer\w*|max_(?:seq_?)?len\w*|\w*epochs|deepspeed\w*|zero(?:_\w+)?|lora\w*|peft\w*|quant\w*|"
    r"load_in\w+|attn\w*|\w*scheduler\w*|adam\w*|eps\w*|\w*dropout|\w*gpus?|devices|strategy|accelerator|"
    r"\w*loss_scal\w*|initial_scale_power|hysteresis|world_size|cutoff_len|finetuning_type|template|overlap_comm|"
    r"flash_attn|arch|architectures|task|criterion|dataset\w*|lr_\w+|betas?|momentum|label_smoothing\w*|num_train\w*|"
    r"use_\w+|trainer\w*|stage|version)",
    re.IGNORECASE,
)
"""Names of settings."""

_MEASURING = lazy_regex(
    r"""loss\w*['"]?\s*[:=]?\s*['"]?[+-]?(?:\d|\.\d|nan\b|inf\b)|\b\d+(?:\.\d+)?(?:it/s|s/it)""", re.IGNORECASE
)
_MOST_NAME = 100
_NUMBER = lazy_regex(r"\s*['\"]?[+-]?(?:\d|\.\d|nan\b|inf\b)", re.IGNORECASE)


def is_measuring(text: str) -> bool:
    """Whether a line reports a loss or a speed, as most log lines do."""
    return len(text) < 1000 and _MEASURING.search(text) is not None


def is_measured(name: str, text: str) -> bool:
    """`loss: 0.3` is a measurement, `loss: cross_entropy` a setting."""
    return len(name) < _MOST_NAME and _MEASURED.fullmatch(name) is not None and _NUMBER.match(text) is not None


def is_told(name: str) -> bool:
    """Whether a value next to this name is always a setting."""
    return len(name) < _MOST_NAME and _TOLD.fullmatch(name) is not None


def is_measurement(node: Node) -> bool:
    """Whether a dict is a log record: `{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.97}`."""
    entries = node.value if isinstance(node.value, dict) else {}
    if any(each.label == "tensor" or _holds_nan(each, 0) for each in entries.values()):
        return True
    measured = sum(
        is_measured(key, str(each.value)) for key, each in entries.items() if not isinstance(each.value, (dict, list))
    )
    return not entries or (measured > 0 and measured * 6 >= len(entries))


def _holds_nan(node: Node, depth: int) -> bool:
    """Whether it contains NaN, which is measured, never set."""
    if isinstance(node.value, list) and depth < 4:
        return any(_holds_nan(each, depth + 1) for each in node.value[:100])
    return isinstance(node.value, float) and math.isnan(node.value)


HIDDEN = "(hidden)"
_NAME = lazy_regex(
    r"(?:.*[._\-])?(?:(?:hub|hf|auth|access|api|bearer|github|wandb|push_to_hub|huggingface)_?token|"
    r"api_?key|access_?key(?:_id)?|secret(?:_\w+)?|password|passwd|credentials?)",
    re.IGNORECASE,
)
_TOKEN = lazy_regex(r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_\-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16})")
_ASSIGNED = lazy_regex(
    r"((?:(?:hub|hf|auth|access)_?token|api_?key|secret|password)['\"]?\s*(?:[=:]|\s)\s*['\"]?)([A-Za-z0-9_\-]{16,})",
    re.IGNORECASE,
)


def without_secrets(settings: Settings) -> Settings:
    """The same settings, with tokens, keys and passwords hidden in values and notes."""
    notes = ((where, _hidden(text)) for where, text in settings.notes)
    return Settings((_without_secret(setting) for setting in settings), notes, settings.code_faults)


def _without_secret(setting: Setting) -> Setting:
    value = setting.value
    if not isinstance(value, str) or not value:
        return setting
    shown = HIDDEN if _NAME.fullmatch(setting.name) else _TOKEN.sub(HIDDEN, value)
    if shown == value:
        return setting
    return Setting(setting.name, shown, setting.source, setting.line, setting.kind)


def _hidden(text: str) -> str:
    return _ASSIGNED.sub(rf"\1{HIDDEN}", _TOKEN.sub(HIDDEN, text))
