"""Gradients that are spread over meshes of every kind count once: their norm is that of the model in one piece."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stage import Played, play

pytestmark = pytest.mark.slow

TRAINED = ("hsdp", "tp", "fsdp-tp", "sequence", "loss-of-dtensor", "expert", "context")
KINDS = (*TRAINED, "random")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Played]]:
    folder = tmp_path_factory.mktemp("meshes")
    acts = {kind: (kind, folder) for kind in KINDS}
    return folder, play("ranks.mesh_job", acts, folder / "stage", ranks=4)


def seen(played: tuple[Path, dict[str, Played]], kind: str) -> list[Any]:
    folder, acts = played
    acts[kind].check()
    return [json.loads((folder / f"{kind}-{rank}.json").read_text()) for rank in range(4)]


@pytest.mark.parametrize("kind", TRAINED)
def test_the_norm_on_a_mesh_is_that_of_the_whole_model_on_every_rank(played, kind):
    for rank in seen(played, kind):
        assert rank["spread"] == pytest.approx(rank["whole"], rel=1e-5)
        assert (rank["kind of loss"] == "DTensor") == (kind == "loss-of-dtensor")


def test_parameters_placed_at_random_count_once_replicated_sharded_unevenly_or_as_summands(played):
    for rank in seen(played, "random"):
        for measured, whole in rank:
            assert measured == pytest.approx(whole, rel=1e-5)
