"""An fp8 scale from earlier steps or other ranks does not fit the values.

## What it means
Delayed scaling multiplies a tensor by a scale that was made from the largest values of earlier steps. It saves a pass
over the tensor. Where values grow faster than the history, they are clipped at the end of fp8's range; where the scale
was made on other ranks, it fits the others' part of the tensor.

## Why it happens
- A short memory: `amax_history_len=1` or `amax_compute_algo="most_recent"`. Megatron's defaults are both.
- The scale is updated every n-th step: `interval` above 1.
- The largest values are not shared by the ranks that share the tensor: `reduce_amax=False`, or a group that leaves the
  tensor-parallel ranks out.
- The history was not restored: a checkpoint without `_extra_state`, a resume from a bf16 checkpoint, an evaluation with
  other data between two steps.

## How to recognize it
- The loss follows bf16's for a while, then spikes or diverges, sooner with a high learning rate or a jump in the data.
- With current (dynamic) scaling the same run is fine.
- `stayfinite check` reads history, interval and group in scripts, yaml files and Megatron's flags.

## How to fix it
- Transformer Engine: `DelayedScaling(fp8_format=Format.HYBRID, amax_history_len=1024, amax_compute_algo="max")`, or
  `Float8CurrentScaling()`, which looks at the tensor itself.
- Megatron: `--fp8-amax-history-len 1024 --fp8-amax-compute-algo max`, or `--fp8-recipe tensorwise`.
- accelerate: `fp8_config: {backend: TE, amax_history_len: 1024, amax_compute_algo: max}`.
- torchao's training scales are dynamic: this cannot happen there.

## When it is a false alarm
A long history is slow to come down after an outlier, which costs precision and no range. `interval` is ignored by newer
releases of Transformer Engine.
"""

from stayfinite.rules.checkpoint.restart import resumed
from stayfinite.rules.facts import Facts
from stayfinite.rules.fp8_settings import EightBits
from stayfinite.rules.known import first_number
from stayfinite.rules.rule import FAIR, HINT, PROOF, REFUTED, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.fp8_loss import lost
from stayfinite.rules.signs.going_bad import began_well

_LOST_STATE = r"(?:missing|unexpected)\W.{0,120}_extra_state|_extra_state.{0,60}\b(?:missing|not found)"
_OTHER_GROUP = r"\bfp8_group\s*=.{0,40}data_parallel"


def judge(facts: Facts) -> Clues:
    """Clues: delayed scales and a failed run; a shorter history makes it likelier."""
    if facts.seen("plan.fp8_stale_scale") is not None:
        return
    eight = facts.context.eight_bits
    if eight is None or not (eight.delayed or facts.mentioned(_OTHER_GROUP)):
        yield Clue("no delayed scaling", REFUTED)
        return
    sign = lost(facts)
    if sign is None:
        return
    yield sign
    given = "" if eight.scaling is None else f" ({eight.scaling.text[:60]})"
    weight = FAIR if eight.delayed_by_word else HINT
    yield Clue(f"fp8 scales come from earlier steps{given}", weight, eight.told.where, risk=True)
    if began_well(facts) is not None:
        yield Clue("it worked while values matched the history", HINT, sign.where)
    yield from short_memory(eight)
    yield from _unshared(facts, eight)
    yield from quote(resumed(facts), FAIR, "scales restart after loading: {:.120}")
    yield from quote(facts.mentioned(_LOST_STATE), FAIR + HINT, "the history was not restored: {:.120}")


def short_memory(eight: EightBits) -> Clues:
    """Settings that make the scale follow one step, or lag by several."""
    if eight.history is not None and eight.history.value <= 1:
        yield Clue(f"the history has one step ({eight.history.text})", FAIR, eight.history.where, risk=True)
    elif eight.algorithm is not None and eight.algorithm.value == "most_recent":
        yield Clue(f"only the last step is used ({eight.algorithm.text})", HINT, eight.algorithm.where, risk=True)
    if eight.interval is not None and eight.interval.value > 1:
        text = f"the scale is updated every {eight.interval.value:g} steps ({eight.interval.text})"
        yield Clue(text, FAIR, eight.interval.where, risk=True)


def _unshared(facts: Facts, eight: EightBits) -> Clues:
    """Ranks hold parts of a tensor and compute separate scales."""
    ranks = first_number(facts.settings, "tensor_model_parallel_size", "tensor_parallel_size", "tp_size")
    if eight.synchronised is not None and not eight.synchronised.value:
        yield Clue(f"ranks do not share amax ({eight.synchronised.text})", FAIR, eight.synchronised.where, risk=True)
    group = facts.mentioned(_OTHER_GROUP)
    if group is not None and ranks is not None and ranks.value > 1:
        text = f"amax is shared by data-parallel ranks only, with {ranks.value:g} tensor-parallel ones"
        yield Clue(text, STRONG, group.where, fix="reduce amax over tensor-parallel ranks too")


RULE = Rule(
    code="SF119",
    fix='amax_history_len=1024, amax_compute_algo="max", reduce_amax=True; or current scaling instead of delayed',
    beats=("nan-loss", "loss-diverging", "exploding-gradient", "loss-collapse"),
    mild_plans={"plan.fp8_stale_scale": PROOF},
)
