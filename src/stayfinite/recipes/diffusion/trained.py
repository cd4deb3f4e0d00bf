"""A trained model on disk, and ``stayfinite train mmdit sample``: text from latents, latents from text, or pairs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.recipes.diffusion.corpus import Layout, open_latents, read_tokens
from stayfinite.recipes.diffusion.model import MMDiT, Shape
from stayfinite.recipes.diffusion.modes import Prediction, Schedule
from stayfinite.recipes.diffusion.sampling import Sampler
from stayfinite.recipes.diffusion.supply import Scale
from stayfinite.recipes.running.directories import require_writable
from stayfinite.recipes.running.place import choose_device
from stayfinite.recipes.settings import Refusing, read_settings, require

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
        plain = asdict(self)
        del plain["scale"]
        return {"version": 1, **plain, "mean": self.scale.mean.tolist(), "spread": self.scale.spread.tolist()}


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
            scale=Scale(mean=torch.tensor(held["mean"]), spread=torch.tensor(held["spread"])),
            lengths=tuple(held["lengths"]),
            words=held["words"] and tuple(held["words"]),
            **{name: held[name] for name in ("schedule", "prediction", "tokenizer")},
        )  # fmt: skip
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
    with Refusing(f"cannot read {path}", "train again, or name another run", (OSError, SafetensorError)):
        held = load_file(path)
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


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Sample from a trained model: --latents gives texts, --tokens gives latents, neither gives pairs."""

    run: str = "runs/mmdit"
    """The --output-dir of a training."""
    latents: str | None = None
    """.npy file of latents: sample their texts."""
    tokens: str | None = None
    """.npz file of input_ids and attention_mask: sample their latents."""
    length: int | None = None
    """Tokens per text; by default the trained length that fits the latent best."""
    count: int = 4
    """Pairs to sample."""
    output: str | None = None
    """Output name for tokens (NAME.npz) and latents (NAME.npy); without it texts are only shown."""
    steps: int = 32
    """Sampling steps."""
    temperature: float = 0.0
    """Token temperature; 0 is greedy. By default 1 for pairs."""
    seed: int = 0
    """Seed of the noise."""
    device: str = "auto"
    """cpu or cuda; by default the best available."""


def main(arguments: Sequence[str], say: Callable[[str], None] = print) -> None:
    """Parse the flags and sample."""
    draw(read_settings(Draw, arguments, "stayfinite train mmdit sample"), say)


def draw(config: Draw, say: Callable[[str], None] = print) -> tuple[Tensor, Tensor, Tensor]:
    """Sample, and return tokens, mask and latents as stored in files, including the given ones.

    Raises:
        UsageError: a file is unreadable or does not fit the model.
    """
    if config.latents is not None and config.tokens is not None:
        raise UsageError(
            ("--latents and --tokens cannot be combined: one is sampled from the other"), fix="use one of them"
        )
    require(config, at_least={1: ("steps", "count"), 0: ("temperature",)})
    if config.output is not None:
        require_writable(Path(config.output).with_suffix(".npz"), "--output")
    model, about = load(config.run, choose_device(config.device))
    if config.length is not None and not 1 <= config.length <= about.shape.length:
        raise UsageError(f"--length {config.length}: the model has {about.shape.length} positions", fix="leave it out")
    nothing = config.latents is None and config.tokens is None
    sampler = Sampler(
        model=model, schedule=about.schedule, prediction=about.prediction, steps=config.steps,
        temperature=config.temperature or float(nothing),
    )  # fmt: skip
    if config.latents is not None:
        latents = _given_latents(Path(config.latents), about)
        ids, mask = _texts(sampler, latents, about, config)
    elif config.tokens is not None:
        ids, mask = _given_tokens(Path(config.tokens), model)
        latents = sampler.latent_from(ids, mask, config.seed)
    else:
        mask = _mask([_of_lengths(about, config, row) for row in range(config.count)], about.shape.length)
        ids, latents = sampler.pairs(mask, config.seed)
    ids, arrays = ids.cpu(), about.layout.to_array(about.scale.restore(latents.cpu()))
    read = reader_of(about.words) if about.tokenizer is None else reader_for(Path(), about.tokenizer)[0]
    for row, (each, its_mask, latent) in enumerate(zip(ids, mask.cpu(), arrays, strict=True)):
        said = f"latent with std {float(latent.std()):.3f}: " if config.latents is None else ""
        say(f"{row}: {said}{text_of(each, its_mask, read)}")
    if config.output is not None:
        _write(Path(config.output), ids, mask.cpu(), arrays, say)
    return ids, mask.cpu(), arrays


def _texts(sampler: Sampler, latents: Tensor, about: About, config: Draw) -> tuple[Tensor, Tensor]:
    """Texts for latents, of the given length or the one the model is most confident in."""
    lengths = sorted({config.length} if config.length is not None else set(about.lengths))
    tried: list[tuple[Tensor, Tensor, Tensor]] = []
    for length in lengths:
        mask = _mask([length] * len(latents), about.shape.length)
        ids = sampler.text_from(latents, mask, config.seed).cpu()
        tried.append((ids, mask, sampler.sureness(ids, mask, latents).cpu()))
    texts, masks, sure = (torch.stack(each) for each in zip(*tried, strict=True))
    best, rows = sure.argmax(0), torch.arange(len(latents))
    return texts[best, rows], masks[best, rows]


def _given_latents(path: Path, about: About) -> Tensor:
    array = np.array(open_latents(path), dtype=np.float32)
    wanted = about.layout.array
    if array.shape == wanted:
        array = array[None]
    if array.shape[1:] != wanted or not len(array):
        raise UsageError(f"{path}: shape {list(array.shape)}, expected {list(wanted)}, rows first")
    if not np.isfinite(array).all():
        rows = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(1)).tolist()
        raise UsageError(f"{path}: NaN or inf in rows {rows[:8]}", fix="write the file again")
    return about.scale.normalize(about.layout.to_positions(torch.from_numpy(array)))


def _given_tokens(path: Path, model: MMDiT) -> tuple[Tensor, Tensor]:
    ids, mask, _ = read_tokens(path)
    longest = model.shape.length
    if mask[:, longest:].any() or int(np.where(mask, ids, 0).max()) >= model.shape.vocabulary:
        raise UsageError(
            f"{path}: more than the model's {longest} positions or {model.shape.vocabulary} tokens",
            fix="use the tokenizer of the training, and truncate the texts",
        )
    held, kept = torch.from_numpy(ids.astype(np.int64))[:, :longest], torch.from_numpy(mask)[:, :longest]
    return torch.where(kept, held, 0), kept


def _of_lengths(about: About, config: Draw, row: int) -> int:
    """Length of an unconditional text, distributed as in training."""
    return config.length or about.lengths[(7 * (row + config.seed) + 3) % len(about.lengths)]


def _mask(lengths: Sequence[int], places: int) -> Tensor:
    return torch.arange(places) < torch.tensor(lengths)[:, None]


def _write(path: Path, ids: Tensor, mask: Tensor, latents: Tensor, say: Callable[[str], None]) -> None:
    np.savez(path.with_suffix(".npz"), input_ids=ids.numpy(), attention_mask=mask.long().numpy())
    np.save(path.with_suffix(".npy"), latents.numpy())
    say(f"saved to {path.with_suffix('.npz')} and {path.with_suffix('.npy')}")


VOCABULARY = "vocab.json"
Reader = Callable[[Sequence[int]], str]


def reader_for(directory: Path, tokenizer: str | None) -> tuple[Reader, list[str] | None]:
    """A decoder for the ids of a dataset, and its word list if any.

    Arguments:
        directory: of the data; may hold ``vocab.json``, a list of words or a mapping of words to ids.
        tokenizer: a directory or hub name to use instead.
    """
    if tokenizer is not None:
        from stayfinite.recipes.seq2seq.tokenizers import load_tokenizer

        loaded: Any = load_tokenizer(tokenizer)
        return (lambda ids: str(loaded.decode(list(ids)))), None
    path = directory / VOCABULARY
    words = _read(path) if path.is_file() else None
    return reader_of(words), words


def reader_of(words: Sequence[str] | None) -> Reader:
    """A decoder for a word list; for numbers if None."""
    if words is None:
        return lambda ids: " ".join(map(str, ids))
    return lambda ids: " ".join(words[index] if index < len(words) else f"<{index}>" for index in ids)


def text_of(ids: Tensor, mask: Tensor, read: Reader) -> str:
    """A row's text without padding."""
    return read(ids[mask].tolist())


def _read(path: Path) -> list[str]:
    with Refusing(f"cannot read {path}", 'a list of words, ["<pad>", "a", ...]'):
        held = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(held, dict) and all(isinstance(value, int) and value >= 0 for value in held.values()):
        words = [f"<{index}>" for index in range(max(held.values(), default=-1) + 1)]
        for word, index in held.items():
            words[index] = word
        return words
    if not isinstance(held, list):
        raise UsageError(f"{path}: expected a list of words, or words and their ids", fix='["<pad>", "a", ...]')
    return [str(word) for word in held]
