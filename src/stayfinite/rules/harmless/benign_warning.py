"""A warning that looks bad and is not.

## What it means
Libraries warn of many things that cost speed, will change in a later version, or are wrong only in special
circumstances. In a run whose numbers are healthy they need no action.

## Why it happens
- `Some weights ... were not initialized from the model checkpoint ... You should probably TRAIN this model`: a new
  head, which is what fine-tuning trains.
- `Was asked to gather along dimension 0, but all input tensors were scalars`: DataParallel collects a scalar loss from
  each card.
- `find_unused_parameters=True was specified ... but did not find any unused parameters`: costs some speed.
- `Detected call of lr_scheduler.step() before optimizer.step()`: with an fp16 scaler, the first optimizer step was
  skipped.
- `use_cache=True is incompatible with gradient checkpointing`, `Setting pad_token_id to eos_token_id`,
  `Grad strides do not match bucket view strides`, `The current process just got forked`, a fused kernel that is
  unavailable, deprecations.

## How to recognise it
It is a warning, not an error; it comes once or at the start; and losses, gradient norms and evaluations go on as they
should.

## How to fix it
Nothing needs to be done. Where the message names a setting, use it: `ddp_find_unused_parameters=False` and
`gradient_checkpointing_kwargs={"use_reentrant": False}` in transformers, `model.config.use_cache = False`,
`TOKENIZERS_PARALLELISM=false`, `OMP_NUM_THREADS` to your liking.

## When it is a false alarm
It is *not* harmless when most of the model's weights are in the list of those not initialised (see
`architecture-mismatch`), or when the scheduler's order is wrong in fp32 as well: then the first learning rate is
skipped (`lr-schedule-bug`).
"""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, Clue, Rule

_KNOWN = (
    r"please also save or load the state of the optimizer|to get the last learning rate computed by the scheduler|"
    r"the epoch parameter in `?scheduler\.step|new embeddings will be initialized from a multivariate normal|"
    r"inputs will be cast from .{0,30} during quantization|the model weights are not tied|typedstorage is deprecated|"
    r"leaked semaphore objects|unable to register cu\w+ factory|non-default generation parameters|"
    r"you are using a model of type \w+ to instantiate a model of type|torch was not compiled with flash attention|"
    r"you should probably train this model on a down-?stream task|were not used when initializing|"
    r"was asked to gather along dimension 0, but all input tensors were scalars|"
    r"did not find any unused parameters in the forward pass|detected call of `?lr_scheduler\.step\(\)`? before|"
    r"`?use_cache=true`? is incompatible with gradient checkpointing|"
    r"setting `?pad_token_id`? to `?eos_token_id|grad strides do not match bucket view strides|"
    r"the current process just got forked|fused unscale kernel is unavailable|"
    r"tried to get lr value before scheduler|could not estimate the number of tokens|"
    r"destroy_process_group\(\) was not called|setting omp_num_threads|"
    r"using gpu \d+ to perform barrier as devices used by this process are currently unknown|FutureWarning|"
    r"DeprecationWarning|triton not available|xformers is not available|"
    r"use_reentrant parameter should be passed explicitly|attention mask and the pad token id were not set|"
    r"hypothesis contains 0 counts of|"
    r"special tokens have been added in the vocabulary|legacy behaviou?r of the|not a scalar in the same class|"
    r"trainer\.tokenizer is now deprecated|"
    r"does not have many workers which may be a bottleneck|no negative (?:samples|images)|"
    r"nan or inf found in input tensor|missing from loss dictionary|VisibleDeprecationWarning|"
    r"overflow(?:ing)? tokens are not returned"
)


def judge(facts: Facts) -> Iterator[Clue]:
    """A known harmless warning, in a run with nothing else wrong."""
    if facts.symptoms.trouble:
        return
    warning = facts.said(_KNOWN)
    if warning:
        yield Clue(warning.text.strip()[:200], PROOF, warning.where)


RULE = Rule(
    code="SF905",
    slug="benign-warning",
    severity="info",
    title="A warning that looks bad and is not.",
    fix="nothing to do",
    judge=judge,
    page=__doc__,
)
