"""fp8 settings of torchao, Transformer Engine and the frameworks on top of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting, Settings
from stayfinite.rules.known import Known, first_number, is_on, mention, written

DELAYED, TENSORWISE, ROWWISE, BLOCKWISE, MXFP8 = "delayed", "tensorwise", "rowwise", "blockwise", "mxfp8"

_EIGHT = lazy_regex(r"\b(?:amp_|mx)?(?:fp8|float8)(?:_\w+)?\b|\btransformer-engine\b", re.IGNORECASE)
_FORMATS = ("mixed_precision", "precision", "amp_dtype", "train_dtype")
_SWITCHES = (
    "fp8", "use_fp8", "fp8_enabled", "enable_fp8", "fp8_training", "enable_float8_linear", "use_float8_linear",
    "float8_enabled", "enable_float8", "fp8_hybrid", "fp8_e4m3", "fp8_format",
)  # fmt: skip
_CALLS = lazy_regex(
    r"(?:^|\.)(?:convert_to_float8_training|swap_linear_with_float8_linear|fp8_autocast|fp8_model_init|"
    r"Float8LinearConfig(?:\.\w+)?|DelayedScaling|Float8CurrentScaling|MXFP8BlockScaling|Float8BlockScaling)(?:\.\w+)?$"
)
_CODE = (
    r"\bconvert_to_float8_training\(|\bFloat8LinearConfig\b|\bfp8_autocast\((?!\s*(?:enabled\s*=\s*)?False)|"
    r"\bfp8_model_init\(|\bFloat8DynamicActivationFloat8Weight\w*\(|\bDelayedScaling\(|\bfp8_group ?="
)
_WORDS = (
    r"\b(?:fp8|float8)\b[\s\w-]{0,20}\b(?:train\w*|mixed precision|recipe|quantization)\b|"
    r"\btrain\w*\b[\s\w-]{0,25}\b(?:in|with|using|through|by)\b[\s\w-]{0,12}\b(?:fp8|float8)\b|"
    r"\bSwapped to Float8Linear|\b(?:nan|diverg\w*|converg\w*)\b[\s\w-]{0,25}\b(?:in|with|using)\b[\s\w-]{0,12}"
    r"\b(?:fp8|float8)\b|^fp8 by "
)
_DENIED = lazy_regex(
    r"\b(?:no|not|without|disabl\w+|instead of|unlike|than|vs\.?|turn\w* off)\s(?:\w+\s)?(?:fp8|float8)|"
    r"\b(?:fp8|float8)\b\s?(?::|=|is)?\s?(?:off|disabled|false)\b",
    re.IGNORECASE,
)
_TORCHAO = r"torchao|torch ao\b|float8_?linear|convert_to_float8|enable_fsdp_float8|recipe_name|converters.{0,20}float8"
_ENGINE = (
    r"transformer[-_ ]?engine|\bfp8[_ ]autocast\b|DelayedScaling|\bfp8[-_](?:format|hybrid|e4m3|margin|interval|amax)|"
    r"amax_(?:history|compute)|backend: TE\b|\bfp8_group\b|TERecipeKwargs|FP8RecipeKwargs"
)
_RECIPES = {
    DELAYED: lazy_regex(r"delayed", re.IGNORECASE),
    MXFP8: lazy_regex(r"mxfp8|\bmx\b", re.IGNORECASE),
    ROWWISE: lazy_regex(r"row_?wise|axis_?wise|per_?row|channel_?wise", re.IGNORECASE),
    BLOCKWISE: lazy_regex(r"block_?(?:wise|scaling)", re.IGNORECASE),
    TENSORWISE: lazy_regex(r"tensor_?wise|per_?tensor|current_?scaling", re.IGNORECASE),
}
_NAMED_RECIPE = (
    "fp8_recipe", "float8_recipe", "float8_recipe_name", "recipe_name", "from_recipe_name_recipe_name", "granularity",
    "scaling_granularity",
)  # fmt: skip
_RECIPE_WORDS = (
    r"\b(?:rowwise|tensorwise|axiswise|blockwise)\b|\bDelayedScaling\b|\bFloat8CurrentScaling\b|\bMXFP8BlockScaling\b|"
    r"\bFloat8BlockScaling\b|\bPer(?:Row|Tensor)\(|\bdelayed scaling\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EightBits:
    """An fp8 training, according to its settings."""

    told: Known
    """The setting that enables it."""
    library: str = ""
    """`torchao`, `Transformer Engine`, or empty."""
    scaling: Known | None = None
    """Scaling recipe: delayed, tensorwise, rowwise, blockwise, mxfp8."""
    history: Known | None = None
    """Steps in the amax history of a delayed scale."""
    interval: Known | None = None
    """Steps between updates of a delayed scale."""
    algorithm: Known | None = None
    """`max` or `most_recent`: which history value sets the scale."""
    synchronised: Known | None = None
    """Whether ranks share their amax."""
    kept: Known | None = None
    """Names of modules that stay in bf16, a list."""

    @property
    def delayed(self) -> bool:
        """Whether scales come from earlier steps, Transformer Engine's default."""
        if self.scaling is not None:
            return bool(self.scaling.value == DELAYED)
        return self.library == "Transformer Engine"

    @property
    def delayed_by_word(self) -> bool:
        """Whether a setting says so, even one specific to delayed scales."""
        told = (self.history, self.interval, self.algorithm, self.synchronised)
        return self.delayed and (self.scaling is not None or any(each is not None for each in told))

    @property
    def coarse(self) -> bool:
        """Whether one scale serves a whole tensor."""
        return self.delayed or self.scaling is None or self.scaling.value == TENSORWISE


def eight_bits_of(settings: Settings, messages: Sequence[str] = (), *, words: bool = True) -> EightBits | None:
    """The fp8 training that settings and log messages describe; None if there is none.

    Without ``words``, remarks do not count: before a launch a comment is not evidence.
    """
    told = _told(settings) or (_said(settings, messages) if words else None)
    if told is None:
        return None
    return EightBits(
        told=told,
        library=_library(settings, told),
        scaling=_scaling(settings, told),
        history=first_number(settings, "fp8_amax_history_len", "amax_history_len"),
        interval=first_number(settings, "fp8_interval", "DelayedScaling_interval", "TERecipeKwargs_interval")
        or first_number(settings, "fp8_config_interval"),
        algorithm=_text(settings, "fp8_amax_compute_algo", "amax_compute_algo"),
        synchronised=_switch(settings, "reduce_amax", "fp8_reduce_amax"),
        kept=_kept(settings),
    )


def _told(settings: Settings) -> Known | None:
    """A switch, a format, a converter or a call."""
    converters = settings.find("converters", "model_converters")
    if converters is not None:
        text = str(converters.value)
        return written(converters, text) if _EIGHT.search(text) or re.search(r"\bmx\b", text) else None
    for setting in settings.all(*_FORMATS):
        if _EIGHT.search(str(setting.value)):
            return written(setting, "fp8")
    launched = settings.find("mixed_precision")
    if launched is not None and settings.find("fp8_config_backend", "fp8_config_fp8_format") is not None:
        return None  # accelerate's file has the section but requests another format
    if (switch := settings.find("fp8", "use_fp8", "fp8_enabled")) is not None and _off(switch):
        return None
    for name in _SWITCHES:
        for setting in settings.all(name):
            if setting.plain.endswith(name) and not _off(setting) and _asks(setting):
                return written(setting, "fp8")
    for setting in settings:
        if _CALLS.search(setting.name) and not setting.doubtful and not _entered_off(setting):
            return written(setting, "fp8")
    return None


def _said(settings: Settings, messages: Sequence[str]) -> Known | None:
    texts = [*settings.texts(), *(("", text) for text in messages)]
    for pattern in (re.compile(_CODE), re.compile(_WORDS, re.IGNORECASE)):
        for where, text in texts:
            if pattern.search(text) and not _DENIED.search(text):
                return Known("fp8", where, text.strip())
    return None


def _off(setting: Setting) -> bool:
    value = setting.value.get("enabled", True) if isinstance(setting.value, dict) else setting.value
    return value is None or is_on(value) is False


def _asks(setting: Setting) -> bool:
    """`fp8: true`, `fp8: hybrid`, `--fp8-format e4m3`; not `weight_fp8: path`."""
    if is_on(setting.value) or isinstance(setting.value, dict):
        return True
    return re.search(r"hybrid|e4m3|e5m2|fp8|float8", str(setting.value), re.IGNORECASE) is not None


def _entered_off(setting: Setting) -> bool:
    return setting.plain.endswith("enabled") and is_on(setting.value) is False


def _library(settings: Settings, told: Known) -> str:
    backend = settings.find("fp8_config_backend", "fp8_backend")
    if backend is not None:
        named = {"ao": "torchao", "te": "Transformer Engine"}
        return named.get(str(backend.value).lower(), str(backend.value))
    text = told.text
    if re.search(_TORCHAO, text, re.IGNORECASE) or settings.search(_TORCHAO) is not None:
        return "torchao"
    if re.search(_ENGINE, text, re.IGNORECASE) or settings.search(_ENGINE) is not None:
        return "Transformer Engine"
    return ""


def _scaling(settings: Settings, told: Known) -> Known | None:
    for setting in settings.all(*_NAMED_RECIPE):
        for name, pattern in _RECIPES.items():
            if pattern.search(str(setting.value)):
                return written(setting, name)
    found = mention(settings, _RECIPE_WORDS)
    text = f"{told.text if found is None else found.value}"
    for name, pattern in _RECIPES.items():
        if pattern.search(text) and (found is not None or re.search(_RECIPE_WORDS, text, re.IGNORECASE)):
            known = found or told
            return Known(name, known.where, known.text)
    return None


def _text(settings: Settings, *names: str) -> Known | None:
    setting = settings.find(*names)
    return None if setting is None else written(setting, str(setting.value).lower())


def _switch(settings: Settings, *names: str) -> Known | None:
    setting = settings.find(*names)
    on = None if setting is None else is_on(setting.value)
    return None if setting is None or on is None else written(setting, on)


def _kept(settings: Settings) -> Known | None:
    """torchtitan's `filter_fqns`, a list or comma-separated names."""
    setting = settings.find("filter_fqns", "float8_filter_fqns")
    if setting is None:
        return None
    names = setting.value if isinstance(setting.value, list) else re.findall(r"[\w.]+", str(setting.value))
    return written(setting, [str(name) for name in names])
