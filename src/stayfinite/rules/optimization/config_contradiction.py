"""Settings contradict each other, or one cannot work.

## What it means
Each setting is valid alone, but not together: the best checkpoint is to be loaded at the end, and
evaluation and saving do not happen at the same steps; the DeepSpeed file says another batch than the Trainer; a
learning rate is negative. The framework refuses, at start or, worse, at the end of the first epoch.

## Why it happens
Settings are copied from several examples, and one of a pair is changed. Defaults join in: transformers never evaluates
and saves every 500 steps by default.

## How to recognize it
- `--load_best_model_at_end requires the save and eval strategy to match`; `requires the saving steps to be a round
  multiple of the evaluation steps`.
- `Please correct the following DeepSpeed config values that mismatch TrainingArguments values`;
  `Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * ...`.
- FSDP over a 4-bit base: `Cannot flatten integer dtype tensors`, `Must flatten tensors with uniform dtype`.
- `Invalid learning rate: -0.001`; `KeyError: 'eval_f1'` at the first evaluation.

## How to fix it
- transformers: `eval_strategy="steps", save_strategy="steps", eval_steps=500, save_steps=500` with
  `load_best_model_at_end=True`; `metric_for_best_model` is a key that `compute_metrics` returns, or `"loss"`, with
  `greater_is_better=False` for losses and error rates.
- DeepSpeed under transformers: `"auto"` for batch sizes, accumulation, clipping, learning rate and precision, and the
  values in the Trainer alone.
- FSDP flattens tensors of one floating dtype: `bnb_4bit_quant_storage` and every other weight in the same one.
- Lengths: the minimum must be below the maximum (`min_new_tokens`, `doc_stride`).

## When it is a false alarm
A script may change a setting after it has been read: only the values written in the file are
checked.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.device.ddp_unused_parameters import MARKED_TWICE
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_REFUSED = (
    r"load_best_model_at_end requires the sav(?:e|ing)|"
    r"correct the following deepspeed config values that mismatch|"
    r"check batch related parameters\. train_batch_size is not equal|"
    r"you have set `?args\.eval(?:uation)?_strategy`? to .{0,80}but you didn'?t pass an `?eval_dataset|"
    r"metric_for_best_model` training argument is set to .{0,60}which is not found"
)


_IMPOSSIBLE = (
    r"\binvalid (?:learning rate|momentum|weight_decay|epsilon|beta)\w*(?: \w+)*: ?-|could not find the monitored key"
)
"""A value that an optimizer refuses, or a metric that nobody reports."""

_SETTING = lazy_regex(
    r"(?<![\w.-])(?:--[a-z]+(?:[-_][a-z]+)+|[a-z]+(?:_[a-z]+)+(?![\w.(])|(?:batch size|learning rate|number of \w+|"
    r"(?:max|min)\w* length|warm-?up|momentum|gradient clipping)\b)"
)
_TOGETHER = (
    r"(?:\b\w*(?:Error|Exception)\b|assertion failed).*(?:mutually exclusive|simultaneously|at the same time|"
    r"\bdivisible by\b|"
    r"\bmust (?:divide|match|equal|be (?:set|smaller|larger|greater|less|equal)\b)|\bnot equal to\b|!=|"
    r"\b(?:larger|smaller|greater|less|lower|longer|more|fewer) than\b|\b(?:can ?not|can'?t|can only) be (?:used|"
    r"combined|set)\b|"
    r"\bnot (?:compatible|allowed|a multiple)\b|\bincompatible\b|\bonly (?:valid|allowed|supported|works)\b|"
    r"\bat (?:most|least)\b|[a-z]_\w+(?:=\S+)? [<>]=? \w+|\w+ [<>]=? [a-z]+_\w+|"
    r"\brequires?\b|\beither all\b|\bnot supported (?:for|with)\b|"
    r"\bconflict\w* with\b|\bcannot both\b|\bonly one of\b)"
)
"""An error about values that do not go together: of two settings, if it names them."""


_OF_TENSORS = lazy_regex(r"\b(?:shapes?|tensors?|dtype|dimensions?)\b", re.IGNORECASE)


def judge(facts: Facts) -> Clues:
    """Clues: contradictory settings in a plan, or the framework's error in a log."""
    refused = facts.said(_REFUSED) or facts.said(_IMPOSSIBLE)
    if (checkpointing := facts.context.checkpointing) is not None and facts.said(MARKED_TWICE) is not None:
        text = f"DDP and re-entrant gradient checkpointing do not go together ({checkpointing.text})"
        fix = 'gradient_checkpointing_kwargs={"use_reentrant": False}, and find_unused_parameters=False'
        yield Clue(text, PROOF, checkpointing.where, fix=fix)
    yield from quote(refused, PROOF)
    if refused is None:
        told = (
            each
            for each in facts.all_said(_TOGETHER)
            if len({*_SETTING.findall(each.text)}) > 1 and not _OF_TENSORS.search(each.text)
        )
        yield from quote(next(told, None), STRONG + HINT)


RULE = Rule(
    code="SF217",
    fix="change one of the two settings above",
    plans={"plan.contradictions": PROOF},
    mild_plans={"plan.broken_cells": PROOF},
    says={
        r"did not return a loss from the inputs, only the following keys": STRONG + HINT,
        r"cannot fine-?tune quantized model with": PROOF,
        r"which is incompatible to the `?\w+": STRONG + FAIR,
        r"so the adapter would never be trained": PROOF,
        r"but \w+ models? requires? `?\w+=": PROOF,
        r"does not allow for gradient clipping because it performs unscaling": PROOF,
        r"cannot flatten integer dtype": PROOF,
        r"(?:must flatten tensors with|flatparameter requires) (?:uniform|the same) (?:dtype|`?requires_grad)": PROOF,
    },
)
