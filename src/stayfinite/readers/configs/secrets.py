"""Hide credentials, which configs contain and reports must not repeat."""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting, Settings

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
    return Settings(
        (_without_secret(setting) for setting in settings), ((where, _hidden(text)) for where, text in settings.notes)
    )


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
