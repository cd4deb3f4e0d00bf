"""DeepSpeed's overlapped communication may corrupt gradients.

## What it means
With `overlap_comm` DeepSpeed reduces one bucket of gradients on a second stream while backward fills the next. If the
two streams are not ordered correctly, the reduction reads a buffer that is being overwritten: a gradient norm of NaN
(or of absurd size) although loss and data are fine.

## Why it happens
It is a race in some versions and combinations: `overlap_comm` with `contiguous_gradients` in ZeRO 1 and 2, with
gradient accumulation, with parameters that are used twice, or with a second backward in a step. Which step it hits
depends on timing, hence on the number of cards, the bucket size and the model.

## How to recognize it
- `"overlap_comm": true` in `zero_optimization`, and NaN in `grad_norm` while the loss before it is healthy, in bf16 or
  fp32 too.
- The same run is fine on one card, with `overlap_comm: false`, or with another `reduce_bucket_size`.
- The step at which it begins changes from run to run with the same seed.

## How to fix it
- DeepSpeed: `"zero_optimization": {"overlap_comm": false}`; if that cures it, upgrade (DeepSpeed 0.19.0 reworked how
  long these buffers live) and try again. `"contiguous_gradients": false` often hides it as well, at the price of
  memory.
- transformers and accelerate take the same JSON (`TrainingArguments(deepspeed="ds_config.json")`,
  `DeepSpeedPlugin(hf_ds_config="ds_config.json")`); Lightning: `DeepSpeedStrategy(overlap_comm=False)`.
- To prove it: run the same batch twice with `CUDA_LAUNCH_BLOCKING=1`; a race disappears, a real overflow stays.

## When it is a false alarm
Most DeepSpeed configurations have `overlap_comm` on and are fine. If fp16 is on, overflow is far likelier; if the loss
is NaN before the gradient norm, the forward pass is to blame and communication is not.
"""

import math

from stayfinite.rules.facts import Facts
from stayfinite.rules.known import is_on
from stayfinite.rules.rule import FAIR, HINT, Clue, Clues, Rule
from stayfinite.rules.signs.witness import not_finite


def judge(facts: Facts) -> Clues:
    """Clues: the switch is a risk; a NaN gradient with a finite loss outside fp16 makes it likely."""
    overlap = facts.settings.find("overlap_comm")
    if overlap is None or not is_on(overlap.value):
        return
    yield Clue(f"{overlap.name}: {overlap.value}", FAIR, overlap.where, risk=True)
    contiguous = facts.settings.find("contiguous_gradients")
    if contiguous is not None and is_on(contiguous.value):
        yield Clue(f"{contiguous.name}: {contiguous.value}", HINT, contiguous.where, risk=True)
    bad = not_finite(facts)
    if bad is None:
        return
    first = facts.symptoms.first_bad
    loss_alive = first is not None and first.grad_norm is not None and not math.isfinite(first.grad_norm)
    loss_alive = loss_alive and first is not None and (first.loss is None or math.isfinite(first.loss))
    yield Clue(
        f"{bad.text}{' while the loss is still finite' if loss_alive else ''}", FAIR if loss_alive else HINT, bad.where
    )


RULE = Rule(
    code="SF504",
    fix='set "overlap_comm": false in zero_optimization (and "contiguous_gradients": false if that is not enough), '
    "then upgrade DeepSpeed",
    beats=("nan-loss", "loss-collapse"),
)
