"""Lightning's own demos, on local tensors, with our line added."""

from __future__ import annotations

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel, ManualOptimBoringModel
from lightning.pytorch.demos.mnist_datamodule import MNISTDataModule
from lightning.pytorch.demos.transformer import LightningTransformer
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from lightning_training import LIGHTNING_SAYS, events
from stayfinite.integrations.lightning import StayFinite
from tiny_training import Lines

pytestmark = [
    *LIGHTNING_SAYS,
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]


class Classifier(LightningModule):
    """An image classifier as the tutorials write it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 32), nn.ReLU(), nn.Linear(32, 10))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = F.cross_entropy(self.layers(images), labels)
        self.log("train_loss", loss, on_step=True, on_epoch=True, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        self.log("val_accuracy", (self.layers(images).argmax(1) == labels).float().mean(), prog_bar=True)

    def test_step(self, batch, batch_idx):
        images, labels = batch
        self.log("test_accuracy", (self.layers(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def digits(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Something like handwritten digits: a bar at a place for each, and noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (count,), generator=generator)
    images = 60 * torch.rand(count, 28, 28, generator=generator)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[2 + 2 * label : 4 + 2 * label] += 150
    return images / 255, labels


@pytest.mark.parametrize("ours", [True, False])
def test_the_mnist_data_module_with_a_broken_image(tmp_path, monkeypatch, ours):
    monkeypatch.setenv("PL_USE_MOCKED_MNIST", "1")
    place = tmp_path / "data" / "MNIST" / "complete"
    place.mkdir(parents=True)
    images, labels = digits(700, seed=1)
    images[:3, 5, 5] = float("nan")
    torch.save((images, labels), place / "training.pt")
    torch.save(digits(100, seed=2), place / "test.pt")
    seed_everything(0, verbose=False)
    model, data = Classifier(), MNISTDataModule(str(tmp_path / "data"), val_split=100, num_workers=0, batch_size=20)
    callbacks = [StayFinite(console=Lines())] if ours else []
    trainer = Trainer(
        max_epochs=3, accelerator="cpu", default_root_dir=tmp_path, logger=False, callbacks=callbacks,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(model, datamodule=data)
    accuracy = trainer.test(model, datamodule=data, verbose=False)[0]["test_accuracy"]
    assert (accuracy > 0.9) is ours
    if ours:
        vetoes = events(tmp_path, "veto", "stayfinite")
        assert 3 <= len(vetoes) <= 9
        assert events(tmp_path, "autopsy", "stayfinite")[0]["cause"] == "bad-data-row"


class LocalTransformer(LightningTransformer):
    """Lightning's transformer, which would download its text."""

    def prepare_data(self) -> None:
        pass


def test_the_transformer_demo(tmp_path):
    def run(callbacks, bad=None):
        seed_everything(0, verbose=False)
        model = LocalTransformer(vocab_size=20)
        tokens = torch.randint(0, 20, (12, 9), generator=torch.Generator().manual_seed(1))
        loader = DataLoader(TensorDataset(tokens[:, :-1], tokens[:, 1:]), batch_size=1)
        if bad is not None:
            weight, seen = next(model.parameters()), []
            weight.register_hook(lambda g: seen.append(1) or (g * float("nan") if len(seen) == bad else g))
        trainer = Trainer(
            max_epochs=1, accelerator="cpu", default_root_dir=tmp_path, logger=False, callbacks=callbacks,
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        )  # fmt: skip
        trainer.fit(model, loader)
        return model

    alone, ours = run([]), run([StayFinite(run_dir=None, console=Lines())])
    for name, value in alone.state_dict().items():
        assert torch.equal(value, ours.state_dict()[name]), name
    guarded = run([StayFinite(run_dir=tmp_path / "run", explain=False, console=Lines())], bad=5)
    assert all(bool(torch.isfinite(value).all()) for value in guarded.state_dict().values())
    assert [each["step"] for each in events(tmp_path, "veto")] == [5]


@pytest.mark.parametrize("kind", [BoringModel, ManualOptimBoringModel])
def test_the_boring_models(tmp_path, kind):
    results = []
    for callbacks in ([], [StayFinite(console=Lines())]):
        seed_everything(0, verbose=False)
        model = kind()
        trainer = Trainer(
            max_epochs=2, accelerator="cpu", default_root_dir=tmp_path, logger=False, callbacks=callbacks,
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        )  # fmt: skip
        trainer.fit(model, datamodule=BoringDataModule())
        results.append(model.layer.weight.detach().clone())
    assert torch.equal(*results)
    assert len((tmp_path / "stayfinite" / "steps.jsonl").read_text().splitlines()) == 128
