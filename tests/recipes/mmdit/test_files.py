from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from stayfinite.errors import UsageError
from stayfinite.recipes.diffusion.corpus import MEMORY, Layout, read_corpus


def write(directory: Path, name: str, ids: np.ndarray, latents: np.ndarray, **more: np.ndarray) -> None:
    for part in ("tokens", "latents"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    held = {"input_ids": ids, "attention_mask": np.ones_like(ids)} | more
    np.savez(directory / "tokens" / f"{name}.npz", **held)
    np.save(directory / "latents" / f"{name}.npy", latents)


def some(rows: int, length: int = 5) -> np.ndarray:
    return np.arange(rows * length).reshape(rows, length) % 7


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    write(tmp_path, "a", some(3), np.random.default_rng(0).normal(size=(3, 4, 6, 6)).astype(np.float32))
    write(tmp_path, "b", some(2, 7), np.random.default_rng(1).normal(size=(2, 4, 6, 6)).astype(np.float16))
    return tmp_path


def test_rows_of_several_files_are_read_and_padded(healthy):
    corpus = read_corpus(healthy, patch=2)
    assert len(corpus) == 5
    assert corpus.ids.shape == (5, 7)
    assert corpus.lengths.tolist() == [5, 5, 5, 7, 7]
    assert corpus.latent(0).shape == (9, 16)
    assert str(corpus.rows[4]) == "b row 1"


def test_a_file_may_hold_one_row_without_a_dimension_for_it(tmp_path):
    write(tmp_path, "one", some(1)[0], np.ones((8,), dtype=np.float64))
    corpus = read_corpus(tmp_path, patch=1)
    assert len(corpus) == 1
    assert corpus.latent(0).shape == (1, 8)


def test_a_text_is_cut_at_the_given_length(healthy):
    assert read_corpus(healthy, patch=1, length=3).ids.shape == (5, 3)


def test_what_stands_at_padding_is_no_token(tmp_path):
    mask = np.array([[1, 1, 1, 0, 0]])
    write(tmp_path, "a", np.array([[1, 2, 3, 50_000, -100]]), np.ones((1, 4)), attention_mask=mask)
    corpus = read_corpus(tmp_path, patch=1)
    assert corpus.ids.tolist() == [[1, 2, 3, 0, 0]]


def test_texts_that_lose_their_end_are_counted(healthy):
    assert [read_corpus(healthy, patch=1, length=length).cut for length in (None, 7, 6, 4)] == [0, 0, 2, 5]


def test_latents_that_do_not_fit_into_memory_are_read_from_their_files(healthy, monkeypatch):
    held = read_corpus(healthy, patch=2)
    monkeypatch.setattr("stayfinite.recipes.diffusion.corpus.MEMORY", 0)
    on_disk = read_corpus(healthy, patch=2)
    assert MEMORY > 0
    assert held.latents is not None
    assert on_disk.latents is None
    assert all(torch.equal(held.latent(index), on_disk.latent(index)) for index in range(5))
    (healthy / "latents" / "b.npy").unlink()
    with pytest.raises(UsageError, match="b.npy is missing"):
        on_disk.latent(4)


@pytest.mark.parametrize(("part", "name"), [("tokens", "b.npz"), ("latents", "b.npy")])
def test_a_missing_partner_is_named(healthy, part, name):
    (healthy / part / name).unlink()
    with pytest.raises(UsageError, match=f"has no {part}/{name}"):
        read_corpus(healthy, patch=1)


@pytest.mark.parametrize("name", ["tokens/b.npz", "latents/b.npy"])
@pytest.mark.parametrize("harm", ["cut", "noise", "empty"])
def test_a_file_that_cannot_be_read_is_named(healthy, name, harm):
    path = healthy / name
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "noise": b"\x00\x01garbage" * 40, "empty": b""}[harm])
    with pytest.raises(UsageError, match=f"cannot read .*{Path(name).name}"):
        read_corpus(healthy, patch=1)


def test_a_pickled_array_is_refused_by_name(healthy):
    np.save(healthy / "latents" / "b.npy", np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    with pytest.raises(UsageError, match="cannot read .*b.npy"):
        read_corpus(healthy, patch=1)


def test_what_a_token_file_lacks_is_named(healthy):
    np.savez(healthy / "tokens" / "b.npz", ids=some(2))
    with pytest.raises(UsageError, match="b.npz holds no input_ids and no attention_mask; it has ids"):
        read_corpus(healthy, patch=1)


@pytest.mark.parametrize(
    ("ids", "latents", "more", "words"),
    [
        (some(2), (2, 4, 6, 6), {"attention_mask": np.ones((2, 4))}, "b.npz: input_ids of shape"),
        (some(2), (3, 4, 6, 6), {}, "b.npz has 2 rows"),
        (some(2), (2, 4, 6, 8), {}, "latents of .*b.npy have shape"),
        (some(2) - 3, (2, 4, 6, 6), {}, "from 0 to below"),
    ],
    ids=["a mask of another shape", "not as many rows", "latents of two shapes", "negative ids"],
)
def test_files_that_do_not_go_together_are_refused(healthy, ids, latents, more, words):
    write(healthy, "b", ids, np.ones(latents), **more)
    with pytest.raises(UsageError, match=words):
        read_corpus(healthy, patch=1)


@pytest.mark.parametrize("wild", [2**40, np.iinfo(np.uint64).max])
def test_an_id_for_which_no_model_could_have_an_embedding_is_refused_by_its_file(healthy, wild):
    ids = some(2).astype(np.uint64)
    ids[1, 2] = wild
    write(healthy, "b", ids, np.ones((2, 4, 6, 6)))
    with pytest.raises(UsageError, match=f"b.npz: input_ids of uint64, from 0 to {wild}"):
        read_corpus(healthy, patch=1)


def test_latents_that_no_layout_fits_are_named_by_their_file(tmp_path):
    write(tmp_path, "a", some(3), np.ones((3, 2, 3, 4, 5), dtype=np.float32))
    with pytest.raises(UsageError, match=r"a.npy: a latent of shape \[2, 3, 4, 5\]"):
        read_corpus(tmp_path, patch=1)


def test_an_empty_directory_is_refused(tmp_path):
    with pytest.raises(UsageError, match="neither tokens"):
        read_corpus(tmp_path, patch=1)
    with pytest.raises(UsageError, match="is not a directory"):
        read_corpus(tmp_path / "nowhere", patch=1)


def test_two_directories_become_one_corpus(healthy, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    write(other, "c", some(2, 9), np.ones((2, 4, 6, 6), dtype=np.float32))
    both = read_corpus(healthy, other, patch=2)
    assert both.own == 5
    assert both.ids.shape == (7, 9)
    assert torch.equal(both.latent(6), torch.ones(9, 16))


@pytest.mark.parametrize("layout", [Layout(array=(6,)), Layout(array=(5, 3)), Layout(array=(2, 6, 4), patch=2)])
def test_positions_lead_back_to_the_array(layout):
    latents = torch.randn(3, *layout.array)
    positions = layout.to_positions(latents)
    assert positions.shape == (3, layout.positions, layout.channels)
    assert torch.equal(layout.to_array(positions), latents)
    assert torch.equal(layout.to_positions(latents[0]), positions[0])


def test_a_patch_is_a_square_of_the_grid():
    grid = torch.arange(16.0).reshape(1, 4, 4)
    assert Layout(array=(1, 4, 4), patch=2).to_positions(grid)[1].tolist() == [2.0, 3.0, 6.0, 7.0]


def test_a_patch_that_does_not_fit_is_refused():
    with pytest.raises(UsageError, match="--patch 4 does not divide"):
        Layout(array=(2, 6, 6), patch=4)
