"""A warning that looks bad but is harmless.

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

## How to recognize it
It is a warning, not an error; it comes once or at the start; and losses, gradient norms and evaluations stay as they
should.

## How to fix it
Nothing needs to be done. Where the message names a setting, use it: `ddp_find_unused_parameters=False` and
`gradient_checkpointing_kwargs={"use_reentrant": False}` in transformers, `model.config.use_cache = False`,
`TOKENIZERS_PARALLELISM=false`, `OMP_NUM_THREADS` to your liking.

## When it is a false alarm
It is *not* harmless when most of the model's weights are in the list of those not initialized (see
`architecture-mismatch`), or when the scheduler's order is wrong in fp32 as well: then the first learning rate is
skipped (`lr-schedule-bug`).
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, Clue, Clues, Rule

_OLD = r"FutureWarning|DeprecationWarning|\bdeprecated\b|will be removed in|legacy behaviou?r|is (?:now )?renamed"
_SLOW = (
    r"not compiled with|\bis(?: not|n't) available\b|\bunavailable\b|unable to register|does not have many workers|"
    r"omp_num_threads|strides do not match|find(?:_| )unused parameters|did not find any unused parameters|"
    r"incompatible with gradient checkpointing|use_reentrant|perform barrier|inputs will be cast|triton not available"
)
_NEW_HEAD = (
    r"newly initialized|not used when initializing|not initialized from the model checkpoint|"
    r"should probably train this model on a down-?stream task|initialized because the shapes did not match|"
    r"new embeddings will be initialized|model weights are not tied|to instantiate a model of type"
)
_TOKENS = (
    r"sequence length is longer than the specified maximum|overflow(?:ing)? tokens are not returned|"
    r"special tokens have been added|"
    r"setting `?pad_token_id`?|attention mask and the pad token id were not set|non-default generation parameters|"
    r"could not estimate the number of tokens"
)
_OF_NOTHING = (
    r"only one class (?:is )?present|\b(?:is|are|being) (?:ill-defined|undefined|not defined)\b|mean of empty slice|"
    r"degrees of freedom <= 0|contains 0 counts|no (?:positive|negative) (?:samples|images|examples)|"
    r"nan or inf found in input tensor|constant input|missing from loss dictionary"
)
_KEEPING_HOUSE = (
    r"save or load the state of the optimizer|last learning rate computed by the scheduler|the epoch parameter in|"
    r"lr_scheduler\.step\(\)`? before|tried to get lr value before|gather along dimension 0|process just got forked|"
    r"leaked semaphore|destroy_process_group\(\) was not called|not a scalar in the same class"
)
_OWN_LOGITS = r"received `?from_logits=True`?, but the `?output`? argument was produced by a"
_KINDS = {
    "an old spelling": _OLD,
    "slower than it could be": _SLOW,
    "a new head is trained from scratch": _NEW_HEAD,
    "a remark on tokens": _TOKENS,
    "a statistic over nothing": _OF_NOTHING,
    "harmless library warning": _KEEPING_HOUSE,
    "Keras takes the logits in front of the activation": _OWN_LOGITS,
}
"""Topics of such warnings: none affects training."""


def judge(facts: Facts) -> Clues:
    """Clues: a known harmless warning in a run without other trouble."""
    if facts.symptoms.trouble:
        return
    for kind, pattern in _KINDS.items():
        warning = facts.said(pattern)
        if warning:
            yield Clue(f"{kind}: {warning.text.strip()[:180]}", PROOF, warning.where)
            return


RULE = Rule(code="SF905", severity="info", fix="nothing to do")
