"""The model trains in evaluation mode, or is evaluated in training mode.

## What it means
A model behaves differently in `train()` and in `eval()`: dropout, BatchNorm's statistics, and in some layers whether
a backward is possible at all. `no_grad` and `inference_mode` switch off the graph. One of them is in force where it
should not be.

## Why it happens
- `model.eval()` for a validation inside the epoch, and no `model.train()` after it: from then on dropout is off and
  BatchNorm is fixed.
- The model was loaded by a helper that calls `eval()` (`from_pretrained` does), and a hand-written loop never calls
  `train()`.
- Evaluation in `train()` mode: results depend on the batch, and the validation set leaks into BatchNorm's statistics.
- BatchNorm in training mode with one value a channel: a last batch of 1, or a 1x1 feature map, has no variance.
- Weights made or changed under `inference_mode` and then used in training.

## How to recognize it
- `ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 256, 1, 1])`.
- `RuntimeError: cudnn RNN backward can only be called in training mode`.
- `RuntimeError: Inference tensors cannot be saved for backward`.
- A training loss that falls and a validation loss that is far higher from the first epoch on, on the same data:
  BatchNorm's running statistics do not fit (momentum, tiny batches, or `eval()` forgotten).
- `print(model.training)` at the head of the training step and of the evaluation.

## How to fix it
- `model.train()` at the head of every training epoch, `model.eval()` and `torch.no_grad()` round the evaluation,
  nothing else.
- A batch of one: `DataLoader(..., drop_last=True)` (transformers: `dataloader_drop_last=True`), or GroupNorm or
  LayerNorm instead of BatchNorm.
- Fixed BatchNorm on purpose: `for m in model.modules(): if isinstance(m, nn.BatchNorm2d): m.eval()` after each
  `train()`.
- Lightning: the Trainer sets modes itself, and keeps what you set by hand before `fit`: call `train()` on submodules
  that were loaded in `eval()`. `Trainer(inference_mode=False)` where a validation step must compute gradients.
- cuDNN RNNs: `model.train()` with `dropout=0`, when the backward is wanted and dropout is not.

## When it is a false alarm
A frozen backbone in `eval()` during training is common and right. A validation loss *below* the training loss is
usual with dropout.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.rule import HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_MODE = lazy_regex(r"\b(?:eval|train)\(\)|\b(?:eval(?:uation)?|train(?:ing)?) mode\b|^\W*train(?:ing)? acc")
_CLAUSE = lazy_regex(r"[,;]\s|\.\s|\bbut\b|\bwhile\b")
_SCORE = lazy_regex(r"\b(?:acc\w*|loss|f1|score|error|dice|m?iou|psnr|auc)\b\D{0,40}(\d+(?:\.\d+)?)", re.IGNORECASE)
FAR_APART = 1.5
"""Ratio of scores in both modes, on the same weights, that dropout does not explain."""


def judge(facts: Facts) -> Clues:
    """Clues: errors that name the mode are proof; a forgotten switch in the notes counts if there is trouble."""
    refused = (
        None
        if facts.symptoms.healthy
        else facts.said(
            r"expected more than 1 value per channel when training|rnn backward can only be called in training mode|"
            r"inference tensors? cannot be saved for backward|inplace update to inference tensor|"
            r"not in (?:training|train) mode"
        )
    )
    yield from quote(refused, PROOF)
    for name, wanted in (("model.training_in_train", True), ("model.training_in_eval", False)):
        seen = facts.seen(name)
        if seen is not None and seen.value is not wanted:
            yield Clue(f"the model is in {'training' if seen.value else 'evaluation'} mode there", PROOF, seen.where)
    asleep = facts.seen("modules.in_eval")
    if asleep is not None and asleep.value:
        yield Clue(f"trainable parts are in evaluation mode: {', '.join(asleep.value)}", STRONG + 1.0, asleep.where)
    if refused is None:
        yield from quote(_measured_in_both(facts), STRONG, "the two modes disagree: {:.120}")


def _measured_in_both(facts: Facts) -> Line | None:
    """Scores in evaluation and training mode that are far apart, one per line."""
    scores: dict[str, tuple[float, str, str]] = {}
    lines = [*facts.settings.notes, *((message.where, message.text) for message in facts.messages)]
    for where, text in ((where, clause) for where, line in lines for clause in _CLAUSE.split(line)):
        named = set(_MODE.findall(text.lower()))
        value = _SCORE.search(text)
        if len(named) == 1 and value is not None:
            mode = "eval" if "eval" in next(iter(named)) else "train"
            scores.setdefault(mode, (float(value.group(1)), where, text))
    if len(scores) < 2:
        return None
    evaluated, trained = scores["eval"], scores["train"]
    low, high = sorted((abs(evaluated[0]), abs(trained[0])))
    apart = high > FAR_APART * max(low, 1e-9)
    return Line(evaluated[1], f"{evaluated[2].strip()}; {trained[2].strip()}") if apart else None


RULE = Rule(
    code="SF410",
    fix=(
        "model.train() at the start of every training epoch, model.eval() with torch.no_grad() around evaluation; "
        "drop_last=True for a batch of one"
    ),
    proofs={
        # Whether the forward pass of the training step runs under no_grad.
        "model.grad_disabled_in_train": "the forward pass runs with gradients disabled",
    },
    beats=("empty-batch", "environment"),
    observes={
        "model.training_in_train": "whether the model is in training mode in the training step",
        "model.training_in_eval": "whether the model is in training mode in the evaluation",
        "modules.in_eval": "names of dropouts in evaluation mode inside parts that learn, a list; empty when none",
    },
    warns={
        r"found \d{2,} module\(s\) in eval mode at the start of training": STRONG + HINT,
    },
)
