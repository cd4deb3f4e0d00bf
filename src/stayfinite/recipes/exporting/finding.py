"""What lies in a run: which recipe, its best model, what its records say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.running.records import RESULT, RUN

MODELS = ("best", "final", "last")
"""What a run keeps its model in, the better one first."""
ADAPTER = "adapter_config.json"
FILES = ("config.json", ADAPTER, "mmdit.json")
RECIPES = ("translate", "mt5", "sft", "grpo", "compare", "mmdit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A run and its model."""

    run: Path
    recipe: str
    model: Path
    launch: dict[str, Any]
    """run.json."""
    result: dict[str, Any]
    """result.json; empty where the run is not over."""

    @property
    def adapted(self) -> bool:
        """Whether the model is an adapter that needs its base."""
        return (self.model / ADAPTER).is_file()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the recipe."""
        return dict(self.launch.get("config") or {})

    def beside(self, name: str) -> dict[str, Any]:
        """A record that the recipe wrote beside the model; empty where there is none."""
        return _record(self.model / name)


def find(run: str) -> Found:
    """The run of this directory.

    Raises:
        UsageError: it is none, has no model yet, or is of something else.
    """
    place = Path(run)
    if not place.is_dir():
        raise UsageError(f"{run}: no such directory", fix="name the --output-dir of a run")
    if place.name in MODELS and not (place / RUN).is_file() and (place.parent / RUN).is_file():
        place = place.parent
    launch = _record(place / RUN)
    recipe = str(launch.get("recipe") or "")
    if not launch:
        raise UsageError(f"{run} is not a run directory: {RUN} is missing", fix="name its --output-dir")
    if recipe not in RECIPES:
        raise UsageError(
            f"{run} is a run of {recipe or 'your own program'}; export supports {', '.join(RECIPES)}",
            fix="save your model with its own save_pretrained",
        )
    named = Path(run)
    places = [named] if named != place else [place / name for name in MODELS]
    model = next((each for each in places if any((each / name).is_file() for name in FILES)), None)
    if model is None:
        raise UsageError(
            f"{run} has no model yet: none of {', '.join(MODELS)} exists",
            fix="wait for its first evaluation, or resume it with the same command",
        )
    return Found(run=place, recipe=recipe, model=model, launch=launch, result=_record(place / RESULT))


def _record(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}", fix="restore it, or train again") from error
    return held if isinstance(held, dict) else {}
