"""A printed argparse.Namespace is settings, alone in a file or among notes."""

from __future__ import annotations

from pathlib import Path

import pytest

from stayfinite.readers.configs.reading import read_config

PRINTED = "Namespace(batch_size=32, clip=0.0, device='cuda:0', lr=0.001)"


@pytest.mark.parametrize(
    "text", [PRINTED, f"torch 1.10\n{PRINTED}\n", f"args: {PRINTED}\n", f"run 3, two cards\n{PRINTED}"]
)
def test_its_values_are_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.txt"
    path.write_text(text)
    found = {setting.name.rpartition(".")[2]: setting.value for setting in read_config(path)}
    assert (found["clip"], found["lr"], found["batch_size"]) == (0.0, 0.001, 32)


def test_a_namespace_in_a_sentence_is_none(tmp_path: Path) -> None:
    path = tmp_path / "config.txt"
    path.write_text("the Namespace(args) of argparse is passed on\n")
    assert not [setting for setting in read_config(path) if setting.name == "args"]
