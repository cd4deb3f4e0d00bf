"""Starting model of reinforcement learning: an adapter, a model, or one built and fine-tuned here."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from torch import nn

from stayfinite.recipes.chat.adapters import adapter_in, read_record
from stayfinite.recipes.chat.bases import is_size
from stayfinite.recipes.chat.data import METRIC, conversions, task_of
from stayfinite.recipes.chat.questions import Question, write_questions
from stayfinite.recipes.chat.using import base_named
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.running.records import RESULT
from stayfinite.recipes.sft import SYSTEM, Sft, settled, train

BEST, START = "best", "start"
SLOPPY = 0.75
"""Share of wrong lengths in the fine-tuning data of the built-in start."""
TINY = "tiny"
"""Built if no model is named."""


def start_of(config: Any, place: Place, say: Callable[[str], None]) -> tuple[Sft, str]:
    """Find or make the start: data, base and adapter as settings of a fine-tuning, and the base's name to record.

    Call on every rank.

    Arguments:
        config: settings of the recipe. Names shared with fine-tuning mean the same.

    Raises:
        UsageError: no adapter, or its base is missing.
    """
    shared = {each.name: getattr(config, each.name) for each in fields(Sft) if hasattr(config, each.name)}
    given = {name: value for name, value in shared.items() if value is not None}
    if config.start is None and config.model is not None and not is_size(config.model):
        settings = Sft(**given)
        return replace(settings, task=task_of(settings)), config.model
    adapter = adapter_in(config.start or _fine_tuned(config, place, say))
    record = read_record(adapter)
    base = base_named(record, str(adapter))
    formed = {
        "system": record.get("system", SYSTEM), "max_length": int(record.get("max_length", Sft().max_length)),
        "bits": record.get("base", {}).get("bits", "full"),
    }  # fmt: skip
    settings = Sft(**(formed | given | {"model": base, "adapter": str(adapter)}))
    if not config.train and config.task == "auto":
        known: Any = "metric" if config.start is None else record.get("task")
        settings = replace(settings, task=known or task_of(settings))
    beside = str(record["base"]["model"]).startswith("../")  # kept by the run, and named relative to it
    return settings, os.path.relpath(base, Path(config.output_dir) / BEST) if beside else base


def without_dropout(model: nn.Module) -> None:
    """Disable dropout, since otherwise the ratio compares two masks."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def _fine_tuned(config: Any, ranks: Place, say: Callable[[str], None]) -> Path:
    """A short fine-tuning run: random weights would never earn a reward."""
    place = Path(config.output_dir) / START
    if ranks.from_first((place / RESULT).is_file()):
        return place
    size = config.model or TINY
    given = ("train", "val", "question", "answer", "val_share", "seed", "device", "precision")
    wanted = {name: getattr(config, name) for name in given}
    say(f"{size} has random weights: fine-tuning it first, in {place}")
    if not config.train:
        say(f"fine-tuning the start on flawed data: {SLOPPY:.0%} of the lengths are ten times too large")
        files = {"train": place / "careless.jsonl", "val": place / "held_out.jsonl"}
        if ranks.first:
            place.mkdir(parents=True, exist_ok=True)
            flawed = careless(conversions("metric", config.sft_rows, held_out=False, seed=config.seed))
            write_questions(flawed, files["train"])
            write_questions(conversions("metric", 50, held_out=True, seed=config.seed), files["val"])
        ranks.wait()
        wanted |= {name: (str(path),) for name, path in files.items()}
    asked = replace(settled(Sft(model=size)), task="auto") if not config.train else Sft(model=size)
    # Divide the batch among ranks, so that the start does not depend on their number.
    asked = replace(asked, batch_size=max(1, asked.batch_size // ranks.count))
    fitted = {"epochs": config.sft_epochs, "eval_epochs": config.sft_epochs, "samples": 0, "check": "off"}
    train(
        replace(asked, **wanted, **fitted, output_dir=str(place), logging_steps=100),
        lambda line: say(f"  {line}") if line.startswith(("step", "tuned")) else None,
    )
    return place


def careless(questions: Sequence[Question]) -> list[Question]:
    """Append a zero to the answers of many length questions.

    This gives a start that is sometimes right, which rewards need.
    """
    lengths = tuple(METRIC["length"])
    found = []
    for each in questions:
        drawn = hashlib.blake2b(each.text.encode(), digest_size=8).digest()
        wrong = int.from_bytes(drawn, "big") / 2**64 < SLOPPY and each.text.split()[2] in lengths
        found.append(replace(each, answer=each.answer + "0") if wrong else each)
    return found
