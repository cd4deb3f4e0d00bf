"""What a run was told to do, from the files beside it and from its log: settings, never executed code."""

from __future__ import annotations

from stayfinite.readers.configs.directory import looks_like_config
from stayfinite.readers.configs.logged import settings_in_text
from stayfinite.readers.configs.reading import read_config

__all__ = ["looks_like_config", "read_config", "settings_in_text"]
