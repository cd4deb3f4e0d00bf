"""Re-entrant gradient checkpointing over a frozen embedding blocks all gradients.

## What it means
Re-entrant checkpointing (`use_reentrant=True`) runs a block without a graph and decides by its *inputs* whether a
graph is needed at all. With a frozen embedding, the input of the first block requires no gradient, so torch builds
none, although adapters inside the block are trainable. torch warns
`None of the inputs have requires_grad=True. Gradients will be None`, and backward then fails with
`element 0 of tensors does not require grad` or, where some other part is trainable, silently leaves the blocks
untrained.

## Why it happens
- LoRA or another adapter with `gradient_checkpointing=True`: only adapters are trainable, the embedding is not.
- A hand-made freeze of the lower layers, or a frozen vision tower, with checkpointing on.
- Older transformers and peft did not make the inputs require gradients; remote code with its own
  `_set_gradient_checkpointing` still does not.
- `prepare_model_for_kbit_training` is missing, or ran before checkpointing was switched on.

## How to recognize it
- `torch/utils/checkpoint.py: UserWarning: None of the inputs have requires_grad=True. Gradients will be None`.
- `element 0 of tensors does not require grad and does not have a grad_fn` with adapters *and* gradient checkpointing;
  it goes away when checkpointing is switched off.
- Adapters whose weights do not change: LoRA's B matrices are still exactly 0.

## How to fix it
- transformers: `gradient_checkpointing_kwargs={"use_reentrant": False}` in TrainingArguments (the default of recent
  versions), or `model.enable_input_require_grads()` after loading and before `get_peft_model`.
- peft: `model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)` for a quantized base, then
  `get_peft_model`.
- LLaMA-Factory, ms-swift, axolotl: `use_reentrant_gc: false`,
  `--gradient_checkpointing_kwargs '{"use_reentrant": false}'`,
  `gradient_checkpointing_kwargs: {use_reentrant: false}`.
- plain torch: `torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)`; where it must be re-entrant,
  `x.requires_grad_(True)` on the first block's input.

## When it is a false alarm
The warning alone is harmless in evaluation with checkpointing left on, and for blocks in which nothing is to be
trained (a frozen vision tower that is checkpointed all the same).
"""

import re

from stayfinite.rules.facts import Facts
from stayfinite.rules.gradient_flow.backward_refused import CHECKPOINTED_NOTHING, no_graph
from stayfinite.rules.known import is_on
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_UNTRAINED = (
    r"lora_?(?:up|B)\b\.?(?:\w+\.)?weight\W{1,4}0(?:\.0+)?\b|\blora\w*[._ ].{0,20}\bgrad\b.{0,6}\bNone\b|"
    r"(?:all|every) (?:\w+ )?(?:gradients?|grads?) (?:are |is )?None\b|"
    r"\blora.{0,60}\[ ?-?0\.?0*, ?-?0\.?0*, ?-?0\.?0*[,\]]"
)
"""Adapters without a gradient, or unchanged after training."""

FEW = 3
"""Losses, from which on a standstill beside the warning is none of chance."""


def judge(facts: Facts) -> Clues:
    """Clues: torch's warning with a failed backward is proof; the settings with one nearly so."""
    warned, refusal, context = facts.said(CHECKPOINTED_NOTHING), no_graph(facts), facts.context
    checkpointing = context.checkpointing
    stuck = refusal or facts.said(_UNTRAINED)
    yield from quote(warned, PROOF if stuck is not None or facts.symptoms.flat or _stands(facts) else 3.0)
    if stuck is None:
        return
    if warned is not None:
        yield Clue(stuck.text.strip()[:120], HINT, stuck.where)
        return
    off = facts.settings.find("gradient_checkpointing")
    if off is not None and is_on(off.value) is False:
        return
    if checkpointing is not None:
        yield Clue(f"gradient checkpointing is on ({checkpointing.text})", STRONG, checkpointing.where)
    elif context.adapters is None or refusal is None:
        return
    yield Clue(stuck.text.strip()[:120], FAIR, stuck.where)
    base = context.adapters or context.quantized
    if base is not None and re.search(r"\b(?:no|without|not) (?:q?lora|peft|adapters?)\b", base.text, re.IGNORECASE):
        base = None
    if base is not None:
        known = checkpointing is not None
        text = (
            "over a frozen base"
            if known
            else "a frozen base with adapters, where checkpointing is the most common cause"
        )
        yield Clue(f"{text} ({base.text.strip()[:80]})", HINT if known else FAIR, base.where, risk=True)


def _stands(facts: Facts) -> bool:
    """Whether the few losses so far do not fall."""
    seen = facts.symptoms
    if seen.points < FEW or seen.first_loss is None or seen.best_loss is None:
        return False
    return seen.best_loss > 0.99 * seen.first_loss


RULE = Rule(
    code="SF403",
    fix=(
        'gradient_checkpointing_kwargs={"use_reentrant": False}, or model.enable_input_require_grads() before adding '
        "adapters"
    ),
    proofs={
        # Torch's warning that no checkpointed input needs a gradient, where none arrived.
        "checkpointing.warned": "{}, and parameters got no gradient",
    },
    prior=-3.5,
    beats=("detached-loss", "zero-gradient", "unused-parameters"),
    plans={"plan.checkpointing_frozen_inputs": STRONG},
)
