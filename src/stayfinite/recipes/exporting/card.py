"""Model card of an export, from the run's records: usage, scores, data, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stayfinite import __version__
from stayfinite.recipes.exporting.finding import Found

TITLES = {
    "translate": "Translation model", "mt5": "Language model (T5)", "sft": "Chat model", "grpo": "Chat model",
    "compare": "Model that compares two images", "mmdit": "Text-to-latent diffusion model (MMDiT)",
}  # fmt: skip
TAGS = {"translate": "translation", "mt5": "text2text-generation", "sft": "text-generation", "grpo": "text-generation"}
SETTINGS = (
    "model", "model_name", "objective", "epochs", "minutes", "steps", "batch_size", "learning_rate", "precision",
    "seed", "rank", "alpha", "lora_rank", "bits", "base", "prefix", "normalise", "system", "max_length",
    "max_source_length", "max_target_length", "block_size",
)  # fmt: skip
LISTED = 8
"""Data files listed."""


def card(found: Found, use: str, notes: Sequence[str]) -> str:
    """README.md of an export.

    Arguments:
        use: Python that loads and runs the model.
        notes: one paragraph each.
    """
    head = ["library_name: transformers" if found.recipe != "mmdit" else "library_name: safetensors"]
    head += [f"pipeline_tag: {TAGS[found.recipe]}"] if found.recipe in TAGS else []
    parts = [
        "---\n" + "\n".join(head) + "\n---",
        f"# {TITLES[found.recipe]}",
        f"Trained with `stayfinite train {found.recipe}`, stayfinite {__version__}.",
        f"```python\n{use.strip()}\n```",
        *notes,
        *_section("Scores", _scores(found.result)),
        *_section("Data", _data(found)),
        *_section("Training", _training(found)),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    table = "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows)
    return [f"## {title}\n\n| | |\n|---|---|\n{table}"]


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")


def _scores(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Numbers of result.json, those under `scores` first."""
    scores = result.get("scores")
    held = dict(scores) if isinstance(scores, Mapping) else {}
    plain = ("validation_loss", "accuracy", "first_loss", "last_loss")
    held |= {name: result[name] for name in plain if result.get(name) is not None and name not in held}
    base = result.get("base")
    rows = [(_words(name), _number(value)) for name, value in held.items() if _is_number(value)]
    if isinstance(base, Mapping):
        rows += [(f"{_words(name)} of the base", _number(value)) for name, value in base.items() if _is_number(value)]
    return rows


def _data(found: Found) -> list[tuple[str, str]]:
    settings, counts = found.settings, found.launch.get("data")
    rows = []
    for name in ("train", "data", "val"):
        given = settings.get(name)
        files = [given] if isinstance(given, str) else list(given or ())
        if files:
            more = f" and {len(files) - LISTED} more" if len(files) > LISTED else ""
            rows.append((name, ", ".join(Path(str(file)).name for file in files[:LISTED]) + more))
    if not rows:
        rows.append(("training", "the recipe's built-in task"))
    if isinstance(counts, Mapping):
        rows += [(_words(str(name)), _number(value)) for name, value in counts.items() if _is_number(value)]
    return rows


def _training(found: Found) -> list[tuple[str, str]]:
    rows = [("steps taken", _number(found.result["steps"]))] if _is_number(found.result.get("steps")) else []
    if _is_number(found.result.get("seconds")):
        rows.append(("minutes", f"{found.result['seconds'] / 60:.1f}"))
    settings = found.settings
    for name in SETTINGS:
        value = settings.get(name)
        if value not in (None, "", [], ()):
            said = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            said = Path(said).name if name in ("model", "model_name") and Path(said).is_absolute() else said
            rows.append((_words(name), said))
    return rows


def _words(name: str) -> str:
    return name.replace("_", " ")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
