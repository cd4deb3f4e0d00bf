from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from stage import play

PAIRS = [
    (("fsdp", 2), ("fsdp", 1)), (("fsdp", 1), ("fsdp", 2)), (("fsdp", 2), ("plain", 1)),
    (("plain", 1), ("fsdp", 2)), (("ddp", 2), ("fsdp", 2)), (("fsdp", 2), ("ddp", 2)),
]  # fmt: skip
"""Who saved, and who resumed: a wrapping and a number of ranks each."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for everybody who saved, and in it one for everybody who resumed from there."""
    folder = tmp_path_factory.mktemp("sharded")
    savers = sorted({saver for saver, _ in PAIRS})
    for ranks in (1, 2):
        acts = {f"{kind}{count}": (kind, "save", folder / f"{kind}{count}") for kind, count in savers if count == ranks}
        _play(folder, "save", ranks, acts)
    for ranks in (1, 2):
        acts = {}
        for (kind, count), (other, others) in PAIRS:
            if others == ranks:
                name = f"{kind}{count}-{other}{others}"
                shutil.copytree(folder / f"{kind}{count}", folder / name)
                acts[name] = (other, "resume", folder / name)
        _play(folder, "resume", ranks, acts)
    return folder


def _play(folder: Path, part: str, ranks: int, acts: dict[str, tuple[str, str, Path]]) -> None:
    for played in play("state.sharded_job", acts, folder / f"{part}-{ranks}", ranks=ranks).values():
        played.check()


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("saved_by", "resumed_by"), PAIRS, ids=lambda each: f"{each[0]}{each[1]}")
def test_a_checkpoint_fits_any_number_of_ranks_and_any_wrapping(
    folder: Path, saved_by: tuple[str, int], resumed_by: tuple[str, int]
) -> None:
    saver, resumer = (f"{kind}{count}" for kind, count in (saved_by, resumed_by))
    names = sorted(path.name for path in (folder / saver / "checkpoints").iterdir())
    assert names == ["step-00000003"], "the poisoned one was given up by every rank"
    one, other = torch.load(folder / saver / "save.pt"), torch.load(folder / f"{saver}-{resumer}" / "resume.pt")
    assert set(one) == set(other)
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], msg=lambda text, name=name: f"{name}: {text}")
