"""A model's config.json, validated field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stayfinite.errors import UsageError

Config = Mapping[str, Any]

BESIDE = "give the config.json next to the weights"  # advice for an impossible config


class Fields:
    """The fields of a config. Invalid values raise UsageError with the field name."""

    def __init__(self, config: Config, name: str) -> None:
        self.config = config
        self.name = name

    def whole(self, *keys: str, default: int | None = None) -> int:
        """A positive integer."""
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 40:
                raise UsageError(f'{self.name}: "{key}" should be a whole number above 0, not {value!r}')
            return value
        if default is None:
            raise UsageError(f'{self.name}: "{keys[0]}" is missing', fix=BESIDE)
        return default

    def rate(self, key: str, default: float) -> float:
        """A share between 0 and 1."""
        value = self.config.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UsageError(f'{self.name}: "{key}" should be a number from 0 to 1, not {value!r}')
        return float(value)

    def share(self, width: int, heads: int) -> int:
        """The width of one head."""
        if heads > width:
            raise UsageError(f"{self.name}: {heads} heads do not divide a width of {width}")
        return width // heads

    def keys_for(self, heads: int) -> int:
        """The number of key-value heads."""
        keys = self.whole("num_key_value_heads", default=heads)
        if heads % keys:
            raise UsageError(f"{self.name}: {heads} heads cannot share {keys} keys evenly")
        return keys

    def text(self, key: str, default: str) -> str:
        value = self.config.get(key)
        return value if isinstance(value, str) else default

    def flag(self, key: str, default: bool) -> bool:
        value = self.config.get(key)
        return value if isinstance(value, bool) else default

    def built_for(self, *tasks: str) -> bool:
        """Whether the architecture's name ends in one of these."""
        named = self.config.get("architectures")
        first = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
        return first.endswith(tasks)

    def classes(self) -> int:
        """Number of classes; 0 for a language model."""
        if not self.built_for("Classification", "QuestionAnswering"):
            return 0
        labels = self.config.get("id2label")
        counted = len(labels) if isinstance(labels, dict) and labels else 2
        return 2 if self.built_for("QuestionAnswering") else self.whole("num_labels", default=counted)
