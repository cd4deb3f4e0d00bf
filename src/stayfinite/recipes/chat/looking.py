"""A quick look at a fine-tuning that is about to be started: does it learn at all?"""

from __future__ import annotations

from typing import Any

import torch

from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.inspection.inspection import Inspection
from stayfinite.inspection.preflight import inspect_training
from stayfinite.readers.data.opening import open_data
from stayfinite.recipes.chat.assembling import adapted, base_of
from stayfinite.recipes.chat.batching import Padding
from stayfinite.recipes.chat.data import examples_of, questions_of
from stayfinite.recipes.chat.losses import loss_of
from stayfinite.recipes.chat.prompts import Prompting
from stayfinite.recipes.chat.streaming import streamed_questions
from stayfinite.recipes.running.optimizing import optimizer_for
from stayfinite.recipes.running.place import choose_precision
from stayfinite.recipes.running.planned import before_plan
from stayfinite.recipes.running.processes import place_of_process
from stayfinite.recipes.streaming.choosing import opened, streams

ENOUGH = 256
"""Built-in questions that a quick look makes."""


def quick_look(config: Any, steps: int = 10) -> Inspection:
    """Build everything as the training would, and look at one batch and ten steps on it. Nothing is kept.

    Arguments:
        config: the settings; their ``output_dir`` is one that may be thrown away.
    """
    with place_of_process(config.device) as place:
        torch.manual_seed(config.seed)
        files = opened(config.train, open_data)
        if streams(config.stream, files):
            training = streamed_questions(config, files, None, _silent).training
        else:
            training, _ = questions_of(config, _silent)
        training = training[: max(ENOUGH, config.batch_size)]
        precision = choose_precision(
            before_plan(config.precision), place.device, _silent, lambda: "fp16 is for inference only"
        )
        base = base_of(config, place, training)
        prompting = Prompting(tokenizer=base.tokenizer, system=config.system)
        examples = examples_of(config, prompting, training, _silent)
        model = adapted(config, base, place.device, precision)
        optimizer = optimizer_for(model, lr=config.learning_rate, weight_decay=config.weight_decay, device=place.device)
        batch = Padding(pad=int(base.tokenizer.pad_token_id))(examples[: config.batch_size])
        control, forward = PrecisionControl(precision, place.device), loss_of(model, place.device)

        def in_precision(batch: Any) -> Any:
            with control.autocast():
                return forward(batch)

        return inspect_training(model, optimizer, batch, in_precision, steps=steps)


def _silent(_: str) -> None:
    return
