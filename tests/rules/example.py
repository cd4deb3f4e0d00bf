"""Facts made from a log and a config as a user would have them, through the real readers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stayfinite.core.settings import Settings
from stayfinite.readers.configs import read_config, settings_in_text
from stayfinite.readers.logs import read_log
from stayfinite.rules.facts import Facts, Observation


@dataclass(frozen=True)
class Example:
    """A run as it lies about: the text of its log, of its config, and what probes saw."""

    log: str = ""
    config: str = ""
    config_name: str = "config.txt"
    observed: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> Facts:
        with TemporaryDirectory() as folder:
            runs, settings = [], Settings()
            if self.log:
                log = Path(folder) / "log.txt"
                log.write_text(self.log)
                runs = read_log(log)
            if self.config:
                config = Path(folder) / self.config_name
                config.write_text(self.config)
                settings = read_config(config)
            settings += settings_in_text((message.where, message.text) for run in runs for message in run.messages)
        return Facts(runs, settings, {name: Observation(value, "probe") for name, value in self.observed.items()})
