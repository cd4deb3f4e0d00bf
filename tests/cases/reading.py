"""Labelled cases: one text file each, with the label above, then the config and the log as they were reported."""

from dataclasses import dataclass
from pathlib import Path

HARMLESS = {"healthy", "amp-initial-scale-search", "benign-warning"}
SAME_CAUSE = {
    "fp16-overflow-model-family": {"fp16-overflow-model-family", "fp16-overflow"},
    "fp16-overflow": {"fp16-overflow", "fp16-overflow-model-family"},
    "pure-fp16-weights": {"pure-fp16-weights", "double-fp16"},
    "environment": {"environment", "upstream-bug"},
    "upstream-bug": {"upstream-bug", "environment"},
}
"""Slugs that name the same cause as a label."""


@dataclass(frozen=True)
class Case:
    name: str
    cause: str
    source: str
    config: str
    log: str

    @property
    def accepted(self) -> set[str]:
        return SAME_CAUSE.get(self.cause, {self.cause})

    @property
    def harmless(self) -> bool:
        return self.cause in HARMLESS

    def write(self, folder: Path) -> list[Path]:
        paths = []
        for name, text in (("log.txt", self.log), ("config.txt", self.config)):
            if text:
                paths.append(folder / name)
                paths[-1].write_bytes(text.encode())
        return paths


def read_cases(folder: str) -> list[Case]:
    found = []
    for path in sorted((Path(__file__).parent / folder).glob("*.case")):
        head, _, rest = path.read_bytes().decode().partition("--- config\n")
        config, _, log = rest.partition("--- log\n")
        label = dict(line.split(": ", 1) for line in head.strip().split("\n"))
        found.append(Case(path.stem, label["cause"], label["source"], config, log))
    return found
