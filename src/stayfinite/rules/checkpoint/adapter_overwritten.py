"""An untrained adapter replaced a trained one.

## What it means
LoRA's second matrix starts at zero, so a fresh adapter does nothing. If the trained adapter is not found, or is put
under another name, training continues from the bare base model, untrained, and the next save writes
the fresh adapter over the trained one.

## Why it happens
- The program looks for one file name (`adapter_model.bin`) and peft has written the other
  (`adapter_model.safetensors`), finds nothing, prints one line and continues.
- `get_peft_model(model, config)` after `PeftModel.from_pretrained(...)`: a second, fresh adapter on top of the first or
  in its place.
- The names do not match (`base_model.model.model...`, another adapter name than `default`, a compiled or wrapped
  model), so that loading with `strict=False` loads nothing.
- An old trick that replaces `model.state_dict` makes newer peft versions save an empty file of some hundred bytes.
- ZeRO-3 saved shards of size 0.

## How to recognize it
- `Checkpoint .../adapter_model.bin not found`, `Found missing adapter keys while loading the checkpoint`,
  `Already found a peft_config attribute in the model`.
- After a restart the loss is exactly where the first run began.
- `adapter_model.*` of less than a kilobyte; all `lora_B` weights zero (`stayfinite scan` shows wholly zero tensors).

## How to fix it
1. Copy the trained adapter away before the next save.
2. Load it once, trainable: `PeftModel.from_pretrained(base, path, is_trainable=True)`; then no `get_peft_model`.
3. transformers: `trainer.train(resume_from_checkpoint=path)` restores adapter, optimizer and schedule together.
4. By hand: `result = set_peft_model_state_dict(model, load_file("adapter_model.safetensors"))` and look at
   `result.unexpected_keys` and missing `lora_` keys.
5. Check after loading: `max(p.abs().max() for n, p in model.named_parameters() if "lora_B" in n)` is more than 0.

## When it is a false alarm
A *first* training starts with a fresh adapter, of course. Two adapters side by side with different names (DPO's
reference) are meant.
"""

from stayfinite.rules.checkpoint.restart import restart, resumed
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_NOT_FOUND = (
    r"checkpoint .{0,120}adapter_model\.\w+ (?:is )?not found|"
    r"(?:can'?t|cannot|could not|unable to) find .{0,60}adapter_(?:model|config)"
)
_SECOND = (
    r"already found a `?peft_config`? attribute|modify a model with peft for a second time|"
    r"trying to modify a model with peft"
)


def judge(facts: Facts) -> Clues:
    """Clues: a missing file, keys that were not loaded, or a loss that starts over."""
    yield from quote(facts.said(_NOT_FOUND), PROOF - HINT / 2)
    yield from quote(facts.said(_SECOND), STRONG, "{:.240}")
    jump = restart(facts) if facts.context.adapters and resumed(facts) else None
    if jump is not None and jump.first is not None and jump.first > 1.3 * jump.before:
        back = abs(jump.after - jump.first) < 0.15 * (jump.first - jump.before)
        if back:
            text = f"after the restart the loss is back at its first value ({jump.after:.4g})"
            yield Clue(text, STRONG + FAIR, jump.where)


RULE = Rule(
    code="SF705",
    fix="copy the trained adapter away, load it with PeftModel.from_pretrained(base, path, is_trainable=True) and "
    "drop get_peft_model",
    beats=("resume-state-missing", "nan-loss"),
    warns={
        r"found missing adapter keys while loading": STRONG + FAIR,
    },
)
