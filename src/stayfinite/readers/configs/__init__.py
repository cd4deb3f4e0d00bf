"""Read a run's settings from its config files, scripts and log, without executing code."""

from __future__ import annotations

from stayfinite.readers.configs.code_faults import faults_in_lines
from stayfinite.readers.configs.files import looks_like_config
from stayfinite.readers.configs.logged import settings_in_text
from stayfinite.readers.configs.reading import read_config

__all__ = ["faults_in_lines", "looks_like_config", "read_config", "settings_in_text"]
