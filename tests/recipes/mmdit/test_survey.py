from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from stayfinite.errors import NotReady, UsageError
from stayfinite.recipes.diffusion.corpus import read_corpus
from stayfinite.recipes.diffusion.supply import read_supply, scale_of, split_by_file, survey
from stayfinite.recipes.diffusion.toy import write_toy_set
from stayfinite.recipes.mmdit import Mmdit


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_toy_set(tmp_path, rows=120)
    return tmp_path


def change(data: Path, file: str, row: int, value: float) -> None:
    path = data / "latents" / f"{file}.npy"
    latents = np.load(path)
    latents[row] = latents[row] * value if np.isfinite(value) else np.where(latents[row] > 0.1, value, latents[row])
    np.save(path, latents)


def supply(data: Path, said: list[str] | None = None, **more: object):
    config = replace(Mmdit(val_share=0.2, patch=3), **more)  # type: ignore[arg-type]
    return read_supply(config, data, (said if said is not None else []).append)


def test_a_healthy_set_has_no_bad_row(data):
    assert survey(read_corpus(data, patch=3)).bad == {}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_named_and_stops_the_start(data, value):
    change(data, "scenes-001", 3, value)
    with pytest.raises(NotReady, match=r"1 rows cannot be trained on: .*scenes-001.npy row 3: \d+ of 324 values"):
        supply(data)


def test_a_row_that_float32_cannot_hold_is_named_without_a_warning_of_numpy(data):
    path = data / "latents" / "scenes-001.npy"
    latents = np.load(path).astype(np.float64)
    latents[3] = 1e300
    np.save(path, latents)
    with pytest.raises(NotReady, match=r"scenes-001.npy row 3: 324 of 324 values are NaN or inf in float32"):
        supply(data)


def test_a_row_that_is_absurdly_large_is_named(data):
    change(data, "scenes-002", 5, 1e6)
    with pytest.raises(NotReady, match=r"scenes-002.npy row 5: values of about"):
        supply(data)


def test_a_row_that_is_merely_large_is_no_alarm(data):
    change(data, "scenes-002", 5, 20.0)
    assert len(supply(data).training) == 96


def test_a_text_without_a_token_is_named(data):
    path = data / "tokens" / "scenes-001.npz"
    held = dict(np.load(path))
    held["attention_mask"][7] = 0
    np.savez(path, **held)
    with pytest.raises(NotReady, match=r"scenes-001.npz row 7: no tokens"):
        supply(data)


def test_bad_rows_can_be_left_out_and_are_still_named(data):
    clean = supply(data)
    change(data, "scenes-001", 3, np.nan)
    said: list[str] = []
    rest = supply(data, said, bad_rows="skip")
    assert len(rest.training) + len(rest.validation) == 119
    assert "1 rows are dropped" in said[0]
    assert "scenes-001.npy row 3" in said[0]
    assert torch.isfinite(rest.scale.mean).all()
    assert torch.allclose(rest.scale.spread, clean.scale.spread, rtol=0.2)


def test_bad_rows_that_are_kept_do_not_spoil_the_scale(data):
    change(data, "scenes-001", 3, np.nan)
    change(data, "scenes-002", 5, 1e30)
    kept = supply(data, bad_rows="keep")
    assert len(kept.training) == 96
    assert torch.isfinite(kept.scale.spread).all()
    assert float(kept.scale.spread.max()) < 10


def test_a_file_is_on_one_side_only_and_always_on_the_same(data):
    corpus = read_corpus(data, patch=3)
    training, validation = split_by_file(corpus, 0.2)
    names = [{corpus.rows[index].pair.name for index in side} for side in (training, validation)]
    assert not names[0] & names[1]
    assert (len(training), len(validation)) == (96, 24)
    assert split_by_file(read_corpus(data, patch=3), 0.2) == (training, validation)


def test_a_copy_of_a_training_row_is_left_out_of_validation(data):
    corpus = read_corpus(data, patch=3)
    training, validation = split_by_file(corpus, 0.2)
    source, target = corpus.rows[training[0]].pair, corpus.rows[validation[0]].pair
    target.tokens.write_bytes(source.tokens.read_bytes())
    target.latents.write_bytes(source.latents.read_bytes())
    with pytest.raises(UsageError, match="no rows left for validation"):
        supply(data)


def test_one_file_cannot_be_split(tmp_path):
    write_toy_set(tmp_path, rows=20)
    with pytest.raises(UsageError, match="need different files"):
        supply(tmp_path)


def test_training_sees_latents_of_mean_0_and_spread_1(data):
    found = supply(data)
    normal = torch.stack([found.scale.normalize(found.corpus.latent(index)) for index in found.training])
    assert float(normal.mean((0, 1)).abs().max()) < 1e-4
    assert torch.allclose(normal.flatten(0, 1).std(0), torch.ones(36), atol=1e-2)
    assert torch.allclose(found.scale.restore(normal[0]), found.corpus.latent(found.training[0]), atol=1e-5)


def test_a_channel_that_never_changes_is_not_blown_up(data):
    for path in (data / "latents").glob("*.npy"):
        latents = np.load(path)
        latents[:, 2] = 0.25 + 1e-9 * np.random.default_rng(0).normal(size=latents[:, 2].shape)
        np.save(path, latents)
    corpus = read_corpus(data, patch=3)
    scale = scale_of(corpus, range(len(corpus)))
    normal = scale.normalize(corpus.latent(0))
    assert torch.isfinite(normal).all()
    assert float(normal[:, 18:27].abs().max()) < 1e-3
