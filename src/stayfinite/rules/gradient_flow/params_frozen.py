"""Nothing is trainable, or the wrong part is frozen.

## What it means
Every parameter, or the part that was to learn, has `requires_grad=False`. The forward works, the loss is printed, and
nothing changes; or backward refuses because the loss depends on no trainable parameter; or the optimizer refuses an
empty list.

## Why it happens
- `PeftModel.from_pretrained(model, path)` loads adapters for inference: its default is `is_trainable=False`. So does
  a config with `inference_mode: true`.
- Freezing too much: a loop over `model.parameters()` instead of over the base, run after the head or the adapters
  were put on.
- `target_modules` of LoRA that match no module of this model, or an adapter under another name that is not the active
  one.
- Loading or wrapping undid it: `model.requires_grad_(False)` of an inference helper, a merged adapter, a quantized
  base.
- A text encoder and a U-Net, or a vision tower and a language model, both switched off by flags.

## How to recognize it
- `trainable params: 0 || all params: 6,755,201,024 || trainable%: 0.0` (peft), `Number of trainable parameters = 0`
  (transformers), `0 Trainable params` (Lightning), `num. trained: 0` (fairseq).
- `ValueError: optimizer got an empty parameter list`.
- `element 0 of tensors does not require grad and does not have a grad_fn` with adapters that were loaded, not made.
- A loss that is finite and does not move, weights that are equal bit for bit after training.

## How to fix it
- peft: `PeftModel.from_pretrained(model, path, is_trainable=True)`; `model.print_trainable_parameters()` before
  training; `model.set_adapter(name)`; `inference_mode=False` in the config. In a QLoRA script call
  `prepare_model_for_kbit_training` *before* the adapters are put on: it freezes everything it finds.
- transformers: to continue training a saved adapter, load it as above, and do not give a `peft_config` to the trainer
  again.
- plain torch: `for p in model.head.parameters(): p.requires_grad_(True)`, and build the optimizer afterwards with
  `[p for p in model.parameters() if p.requires_grad]`.
- Lightning: a `BackboneFinetuning` callback freezes until `unfreeze_backbone_at_epoch`; see that the head is not part
  of the backbone.

## When it is a false alarm
A frozen base under trainable adapters or a trainable head is the purpose; what counts is that the number of trainable
parameters is the one you meant. An evaluation-only run has none.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.gradient_flow.backward_refused import (
    CHECKPOINTED_NOTHING,
    TRAINABLE,
    TRAINS_A_PART,
    all_switched_off,
    loaded_frozen,
    no_graph,
    nothing_trainable,
)
from stayfinite.rules.gradient_flow.standstill import stands_still
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_NOTHING_CHOSEN = (
    r"\b\w*(?:lora|train|tune|unfreeze|target|adapter)\w*(?:layers?|modules?|targets?|params?|parameters|"
    r"blocks?)\w*\W{1,3}"
    r"(?:null|none|\[\s*\]|''|\"\")\s*$|\btrain_(?:unet|text_encoder\w*|backbone|head)\W{1,3}(?:false|0)\s*$"
)


_UNTRAINED = (
    r"\b(?:from scratch|no pre-?trained (?:weights|model|checkpoint)|without pre-?trained|randomly initiali[sz]ed)\b"
)
_HELD = (
    r"\bfreeze_(?:base|backbone|encoder|model|embeddings)\s*[=:]\s*True|"
    r"\b(?:base|backbone|encoder|embeddings?) (?:is|are|stays?) frozen"
)
AGREED = 3
"""Lines after which a policy that learns is no longer its reference."""


def judge(facts: Facts) -> Clues:
    """Clues: a count of zero is proof; an empty optimizer or an inference adapter nearly so."""
    seen = facts.seen("parameters.trainable")
    if seen is not None and seen.value == 0:
        yield Clue("no parameter is trainable", PROOF, seen.where)
    zero = nothing_trainable(facts)
    if zero is not None and not (_trains(facts) and not facts.symptoms.trouble):
        yield Clue(zero.text.strip(), PROOF, zero.where)
    empty = facts.said(r"optimizer got an empty parameter list|empty list of parameters|no parameters to optimi[sz]e")
    if empty is not None:
        yield Clue(empty.text, STRONG if facts.context.adapters is not None else FAIR, empty.where)
        chosen = facts.mentioned(r"filter\(.{0,40}requires_grad|\bif \w+\.requires_grad|get_trainable|trainable_param")
        if chosen is not None:
            text = f"the optimizer gets only trainable parameters, and there are none: {chosen.text.strip()[:100]}"
            yield Clue(text, STRONG, chosen.where)
    refusal = no_graph(facts)
    stuck = facts.symptoms.flat or facts.symptoms.zero_norms > 0
    if refusal is not None or stuck or zero is not None or empty is not None:
        yield from quote(loaded_frozen(facts), STRONG, "an adapter is loaded for inference: {:.100}")
    yield from quote(refusal, FAIR)
    if refusal is not None or empty is not None or stuck:
        frozen = facts.mentioned(
            r"^(?!.*(?:tensor\(|\bloss\b)).*requires_grad(?:_\(| ?= ?)False|"
            r"\bfreez|\bfrozen\b|finetuning_type: ?freeze|num_layer_trainable|"
            r"train_unet.{0,12}false|tune_\w+: ?false"
        )
        yield from quote(frozen, HINT if stuck else FAIR, "parameters are frozen: {:.100}")
    if not facts.symptoms.healthy:
        untrained, held = facts.mentioned(_UNTRAINED), facts.mentioned(_HELD)
        if untrained is not None and held is not None:
            text = f"untrained weights are frozen: {held.text.strip()[:60]}, {untrained.text.strip()[:60]}"
            yield Clue(text, STRONG, held.where)
    off = all_switched_off(facts)
    if off is not None and (not facts.symptoms.healthy or stands_still(facts)):
        yield Clue(f"every listed parameter has requires_grad False: {off.text[:100]}", STRONG + FAIR, off.where)
    if refusal is not None or stuck:
        chosen = facts.mentioned(_NOTHING_CHOSEN)
        yield from quote(chosen, STRONG, "nothing is selected for training: {:.100}")
        by_hand = facts.mentioned(TRAINS_A_PART)
        if by_hand is not None and zero is None and chosen is None:
            text = f"a part is trainable, so its graph is detached: {by_hand.text.strip()[:100]}"
            yield Clue(text, AGAINST, by_hand.where)
    yield from quote(facts.symptoms.contradicted("epochs alike"), STRONG, "{}: no weight has changed")
    same = _equals_reference(facts)
    if same:
        yield Clue("policy and reference agree to the last digit: no weight has changed", STRONG + HINT, same)
    if zero is None:
        yield from quote(facts.said(CHECKPOINTED_NOTHING), AGAINST, "checkpointing got no input with a gradient: {}")


def _equals_reference(facts: Facts) -> str:
    """Where every reward of a preference training is exactly 0 at a rate above 0; else empty."""
    chosen, rejected = facts.metric("rewards/chosen"), facts.metric("rewards/rejected")
    rate = facts.symptoms.largest_lr
    still = len(chosen) >= AGREED and not any(value for value, _ in (*chosen, *rejected))
    return chosen[-1][1] if still and rejected and rate is not None and rate > 0 else ""


def _trains(facts: Facts) -> bool:
    """Whether trainable parameters are reported: a later count of 0 is from an export or a test."""
    return facts.said(
        rf"(?<!non-)(?<!non )trainable (?:model )?param\w*\s*[:=]+\s*[1-9]|{TRAINABLE}[1-9]"
    ) is not None or (
        facts.mentioned(r"\b(?:export|merge|inference|generat|evaluat|predict)\w*") is not None
        and facts.symptoms.points == 0
        and facts.symptoms.crash is None
    )


RULE = Rule(
    code="SF402",
    fix=(
        "PeftModel.from_pretrained(..., is_trainable=True), or requires_grad_(True) on the parts to train, before "
        "building the optimizer"
    ),
    prior=-3.5,
    beats=(
        "detached-loss",
        "gradient-checkpointing-no-input-grad",
        "zero-gradient",
        "unregistered-module",
        "loss-collapse",
    ),
    observes={"parameters.trainable": "the number of trainable parameters"},
    says={
        r"the model does not have any trainable weights": PROOF,
    },
)
