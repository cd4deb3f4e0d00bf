from __future__ import annotations

import numpy as np
import pytest
import torch

from mmdit_runs import run, write_data
from stayfinite.errors import UsageError
from stayfinite.recipes.diffusion.evaluation import _Correlation
from stayfinite.recipes.diffusion.model import MMDiT, Shape
from stayfinite.recipes.diffusion.modes import amounts, target
from stayfinite.recipes.diffusion.sampling import Sampler
from stayfinite.recipes.diffusion.trained import Draw, draw
from stayfinite.recipes.mmdit import main

SHAPE = Shape(vocabulary=11, length=6, positions=4, channels=3, width=16, depth=1, heads=2)


class Knowing(MMDiT):
    """Knows the pair that everything was made from."""

    def __init__(self, ids, latent, schedule, kind) -> None:
        super().__init__(SHAPE)
        self.ids, self.truth, self.schedule, self.kind = ids, latent, schedule, kind
        self.asked: list[tuple[float, float]] = []

    def forward(self, ids, mask, latent, text_time, latent_time):
        self.asked.append((float(text_time[0]), float(latent_time[0])))
        signal, sigma = (each[:, None, None] for each in amounts(self.schedule, latent_time))
        noise = (latent - signal * self.truth) / sigma
        logits = 9.0 * torch.nn.functional.one_hot(self.ids, 11).float()
        return logits, target(self.kind, self.truth, noise, signal, sigma)


@pytest.mark.parametrize("kind", ["epsilon", "x0", "v"])
@pytest.mark.parametrize("schedule", ["linear", "cosine", "sigmoid"])
def test_a_model_that_knows_the_answer_is_led_to_it(kind, schedule):
    ids, latent = torch.randint(11, (3, 6)), torch.randn(3, 4, 3)
    mask = torch.arange(6) < torch.tensor([[4], [6], [1]])
    model = Knowing(ids, latent, schedule, kind)
    sampler = Sampler(model=model, schedule=schedule, prediction=kind, steps=7)
    assert torch.allclose(sampler.latent_from(ids, mask), latent, atol=1e-2)
    assert {text for text, _ in model.asked} == {0.0}
    written = sampler.text_from(latent, mask)
    assert torch.equal(written, torch.where(mask, ids, 0))
    both = sampler.pairs(mask)
    assert torch.equal(both[0], written)
    assert torch.allclose(both[1], latent, atol=1e-2)


def test_sampling_uses_no_random_number_of_the_training_and_leaves_its_mode():
    model = MMDiT(SHAPE).train()
    before = torch.get_rng_state()
    sampler = Sampler(model=model, schedule="cosine", prediction="v", steps=3, temperature=1.0)
    ids, latent = sampler.pairs(torch.ones(2, 6, dtype=torch.bool), seed=4)
    assert torch.equal(before, torch.get_rng_state())
    assert model.training
    assert torch.isfinite(latent).all()
    assert int(ids.max()) < SHAPE.vocabulary
    again = sampler.pairs(torch.ones(2, 6, dtype=torch.bool), seed=4)
    assert torch.equal(again[0], ids)
    assert torch.equal(again[1], latent)


def test_an_untrained_model_that_says_absurd_things_gives_finite_latents():
    model = MMDiT(SHAPE)
    torch.nn.init.constant_(model.latent_out.say.bias, 1e30)
    sampler = Sampler(model=model, schedule="linear", prediction="epsilon", steps=3)
    latent = sampler.latent_from(torch.zeros(2, 6, dtype=torch.int64), torch.ones(2, 6, dtype=torch.bool))
    assert torch.isfinite(latent).all()


def test_the_correlation_is_that_of_each_channel():
    truth = torch.randn(8, 5, 3)
    alike, other = _Correlation(3), _Correlation(3)
    alike.add(2 * truth + 1, truth)
    other.add(torch.randn(8, 5, 3), truth)
    assert alike.value == pytest.approx(1.0)
    assert abs(other.value) < 0.5


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    data = write_data(folder / "pairs")
    run(data, folder / "run", steps=2, eval_steps=2)
    return folder


def test_texts_are_drawn_from_a_file_of_latents_and_back(trained, tmp_path):
    said: list[str] = []
    latents = trained / "pairs" / "latents" / "scenes-000.npy"
    ids, mask, _ = draw(
        Draw(run=str(trained / "run"), latents=str(latents), steps=2, output=str(tmp_path / "out" / "texts")),
        said.append,
    )
    assert ids.shape == mask.shape == (24, 9)
    assert said[0].startswith("0: ")
    _, _, arrays = draw(
        Draw(run=str(trained / "run"), tokens=str(tmp_path / "out" / "texts.npz"), steps=2), said.append
    )
    assert arrays.shape == (24, 4, 9, 9)
    assert torch.isfinite(arrays).all()
    assert np.load(tmp_path / "out" / "texts.npy").shape == (24, 4, 9, 9)


def test_pairs_are_drawn_from_nothing_by_the_command(trained, capsys):
    main(["sample", "--run", str(trained / "run"), "--count", "3", "--steps", "2"])
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_what_cannot_be_drawn_is_refused(trained, tmp_path):
    own = str(trained / "run")
    broken = np.load(trained / "pairs" / "latents" / "scenes-000.npy")
    broken[2, 0, 0, 0] = np.nan
    np.save(tmp_path / "broken.npy", broken)
    np.save(tmp_path / "odd.npy", np.ones((2, 5)))
    np.savez(tmp_path / "long.npz", input_ids=np.ones((1, 40), dtype=int), attention_mask=np.ones((1, 40)))
    for settings, words in (
        ({"run": str(tmp_path)}, "no model in"),
        ({"run": own, "latents": str(tmp_path / "broken.npy")}, r"NaN or inf in rows \[2\]"),
        ({"run": own, "latents": str(tmp_path / "odd.npy")}, r"shape \[2, 5\], expected \[4, 9, 9\]"),
        ({"run": own, "latents": str(tmp_path / "none.npy")}, "none.npy is missing"),
        ({"run": own, "tokens": str(tmp_path / "long.npz")}, "the model's 9 positions"),
        ({"run": own, "latents": "a", "tokens": "b"}, "one is sampled from the other"),
        ({"run": own, "length": 99}, "--length 99: the model has 9 positions"),
        ({"run": own, "steps": 0}, "--steps 0: expected a number of at least 1"),
    ):
        with pytest.raises(UsageError, match=words):
            draw(Draw(**settings), lambda _: None)


def test_the_built_in_set_is_written_where_a_person_can_look_at_it(tmp_path, capsys):
    main(["toy", str(tmp_path / "pairs")])
    assert "1,944 rows" in capsys.readouterr().out
    assert (tmp_path / "pairs" / "vocab.json").exists()
    with pytest.raises(UsageError, match="already holds data"):
        main(["toy", str(tmp_path / "pairs")])
    with pytest.raises(UsageError, match="expected one output directory"):
        main(["toy"])
