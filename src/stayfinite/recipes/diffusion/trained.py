"""A trained model on disk, with everything needed to sample from it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from stayfinite.errors import UsageError
from stayfinite.recipes.diffusion.layout import Layout
from stayfinite.recipes.diffusion.model import MMDiT, Shape
from stayfinite.recipes.diffusion.schedules import Prediction, Schedule
from stayfinite.recipes.diffusion.survey import Scale

ABOUT, WEIGHTS = "mmdit.json", "model.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Metadata of a model."""

    shape: Shape
    layout: Layout
    schedule: Schedule
    prediction: Prediction
    scale: Scale
    lengths: tuple[int, ...]
    """Quantiles of the training text lengths: 0 %, 5 %, ... 100 %."""
    words: tuple[str, ...] | None
    tokenizer: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            "shape": asdict(self.shape),
            "layout": asdict(self.layout),
            "schedule": self.schedule,
            "prediction": self.prediction,
            "mean": self.scale.mean.tolist(),
            "spread": self.scale.spread.tolist(),
            "lengths": list(self.lengths),
            "words": self.words and list(self.words),
            "tokenizer": self.tokenizer,
        }


def write_about(directory: Path, about: About) -> None:
    """Write the metadata of a model."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / ABOUT).write_text(json.dumps(about.to_json(), indent=1, ensure_ascii=False), encoding="utf-8")


def read_about(directory: Path) -> About:
    """Read the metadata of a model. Raises UsageError if missing or invalid."""
    path = directory / ABOUT
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        return About(
            shape=Shape(**held["shape"]),
            layout=Layout(array=tuple(held["layout"]["array"]), patch=held["layout"]["patch"]),
            schedule=held["schedule"],
            prediction=held["prediction"],
            scale=Scale(mean=torch.tensor(held["mean"]), spread=torch.tensor(held["spread"])),
            lengths=tuple(held["lengths"]),
            words=held["words"] and tuple(held["words"]),
            tokenizer=held["tokenizer"],
        )
    except FileNotFoundError as error:
        raise UsageError(
            f"no model in {directory}: {ABOUT} is missing", fix="name the --output-dir of a run"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"cannot read {path}: {type(error).__name__}: {error}", fix="name another directory"
        ) from error


def save(model: MMDiT, about: About, directory: Path) -> None:
    """Write a model and its metadata."""
    write_about(directory, about)
    save_file(
        {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}, directory / WEIGHTS
    )


def model_directory(named: str) -> Path:
    """Directory of a run's model: ``best/``, or the directory itself."""
    directory = Path(named)
    return directory / "best" if (directory / "best" / WEIGHTS).is_file() else directory


def load_weights(model: MMDiT, directory: Path) -> None:
    """Load saved weights into a model. Raises UsageError if missing, or of another shape."""
    path = directory / WEIGHTS
    if not path.is_file():
        raise UsageError(
            (f"{WEIGHTS} is missing in {directory}"), fix="name the --output-dir of a run that was evaluated"
        )
    try:
        held = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"cannot read {path}: {error}", fix="train again, or name another run") from error
    own = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    wrong = [name for name in own if name not in held or tuple(held[name].shape) != own[name]]
    if wrong or len(held) != len(own):
        raise UsageError(
            f"{path} does not fit this model: {len(wrong)} of {len(own)} tensors differ, first {[*wrong, 'none'][0]}",
            fix="use the same --size, vocabulary, text length and --patch as that run",
        )
    model.load_state_dict(held)


def load(named: str, device: torch.device) -> tuple[MMDiT, About]:
    """The model of a run, ready for sampling."""
    directory = model_directory(named)
    about = read_about(directory)
    model = MMDiT(about.shape)
    load_weights(model, directory)
    return model.to(device).eval(), about
