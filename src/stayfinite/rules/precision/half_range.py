"""Shared by the fp16 rules: signs that a run left the fp16 range, and signs against it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.known import Known
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, REFUTED, STRONG, Clue
from stayfinite.rules.signs.going_bad import began_well, went_bad

SCALE_AT_FLOOR = (
    r"loss scale already at minimum|minimum loss scale reached|grad_scale is too small|"
    r"cannot decrease (?:the )?(?:loss )?scale|loss[ _]scale.{0,40}(?:reached|below|at) (?:its |the )?minimum|"
    r"scale has reached|loss scale:? (\d{1,3}(?:\.0)?),? (?:and )?reducing to \1(?![\d.])|"
    r"loss scale from (\d{1,3}(?:\.0)?) to \2(?![\d.])|"
    r"\b(?:lg|log2?)_?(?:loss|grad)_?scale\W{1,9}(?:to )?-(?:2[4-9]|[3-9]\d|\d{3})"
)
"""Final messages of DeepSpeed, fairseq, icefall and others."""


ROW = 4
"""Consecutive skips that a scale search cannot explain."""

EARLY = 3
"""Points after which a format fails that does not hold the model."""

TINY_RATE = 5e-6
"""Below it a few updates are no reason for NaN."""

NO_SCALE = 1.0
"""At this scale an overflowing gradient is itself infinite."""

STILL_LOW = 1024.0
"""Above it, a search that started high is still running."""

VANISHED = 1e-3
"""No gradient needs such a small scale."""

WITHOUT_BF16 = r"\b(?:V100|T4|P100|P40|K80|GTX ?\d+\w*|(?:RTX ?)?20[678]0\w*|2080 ?Ti|TITAN|Quadro)\b"
"""GPUs before Ampere: 16-bit training there is fp16."""

FINE_OTHERWISE = (
    r"(?:fp32|float32|full precision|bf16|bfloat16|without (?:fp16|amp|half|mixed precision)|(?:fp16|amp|half|"
    r"mixed precision) (?:off|disabled|false))[^.;\n]{0,40}\b(?:fine|works?|ok|okay|normal|finite|no nan|trains?|"
    r"stable|converges?|solves?|fixes|cures?)\b"
)
"""A remark that the same run works in another format."""


FP16_MODES = (
    r"\bcudaHalf\(|:half\(\)|AmpOptimWrapper|Fp16OptimizerHook|\bfp16\s*=\s*dict\(|[-_]amp[-_]|"
    r"set_floatx\(['\"]float16|mixed_float16|dtype=torch\.float16\)|\bcuda\.HalfTensor\b|\bcuda\.amp\b|"
    r"\bapex\b.{0,20}\bamp\b|\bamp_level\W{1,4}O[123]\b|\bautocast\((?:(?:device_type ?= ?)?['\"]cuda['\"])?\)|"
    r"\bGradScaler\((?!.*False)|\bmp\W{1,3}fp16\b|"
    r"(?<![a-z])(?:\w{1,30}[_.-])?(?:amp|fp16|float16|"
    r"mixed[ _-]precision)(?:[_.-]\w{1,30})?\s{0,3}[:= ]\s{0,3}(?:true|on|yes|enabled)\b|"
    r"--(?:use[-_])?(?:amp|mixed[-_]precision)(?=\s|$)"
)
"""Names of fp16 mixed precision in OpenMMLab, Keras, torch and others."""

_NOT_HALF = r"bf16|bfloat16|without|\bnot?\b|no_half|no_amp|disabl|full_eval|half2|matmul_in_fp16"
"""Words in the same line that mean another format, or off."""

FP16_UNLESS_TOLD = r"nnU-?Net|\bultralytics\b|\byolov(?:5|8|9|10)|\byolo11"
"""Frameworks that use fp16 autocast by default."""


WHOLE_MODEL = (
    r"\bgrad\b.{0,80}\bdtype=torch\.float16|\bParameter containing.{0,200}float16|set_floatx\(['\"]float16|"
    r"\bcudaHalf\(|:half\(\)|\bHalfTensor\b|\bclip\.load\(|\bconvert_weights\(|"
    r"\b(?:f16|fp16|float16|half)\b ?\(?(?:for )?(?:the )?whole (?:model|net\w*)|"
    r"\bset_default_dtype\(torch\.(?:half|float16)|\bset_default_tensor_type\(.{0,20}Half|"
    r"\bparam(?:eter)?s?(?:\.dtype| dtype)?\W{1,4}(?:torch\.)?(?:float16|f16|half)\b"
)
"""fp16 weights as created by Torch 7, CLIP (by default on GPUs) and custom scripts."""

_PLAIN_HALF = ("half", "f16", "torch.half")
_MIXED = r"\bamp\b|autocast|mixed|gradscaler|deepspeed|lightning|accelerate|opt_level|\bapex\b|fairseq|megatron|nemo\b"
_INPUT_CAST = lazy_regex(
    r"\b(?:x\w{0,6}|inp\w*|image\w*|img\w*|batch\w*|pixel\w*|data\w*|mask\w*|latent\w*|noise\w*|prompt\w*|"
    r"target\w*|label\w*|feat\w*|audio\w*|sample\w*|tensor|cond\w*|t)(?:\[.{0,20}\])?\."
    r"(?:half\(\)|to\((?:dtype=)?torch\.)",
    re.IGNORECASE,
)


def half_weights(facts: Facts) -> Known | None:
    """The dtype of the weights, like `Context.weights`, plus signs in scripts without mixed precision."""
    known = facts.context.weights
    if known is not None and not (known.value == "fp16" and _INPUT_CAST.search(known.text)):
        return known
    whole = facts.mentioned(WHOLE_MODEL)
    if whole is not None:
        return Known("fp16", whole.where, whole.text.strip())
    for setting in facts.settings.all("precision", "dtype", "data_type", "default_dtype", "floatx"):
        if str(setting.value).lower() in _PLAIN_HALF and facts.mentioned(_MIXED) is None:
            return Known("fp16", setting.where, f"{setting.name}: {setting.value}")
    return None


def half_of(facts: Facts) -> Known | None:
    """Where fp16 comes from: a setting, a framework's name for it, or a framework's default."""
    if facts.context.half is not None or facts.context.precision is not None:
        return facts.context.half
    found = facts.mentioned(FP16_MODES)
    if found is not None and re.search(_NOT_HALF, found[1], re.IGNORECASE):
        found = None
    found = found or facts.mentioned(FP16_UNLESS_TOLD)
    return None if found is None else Known("fp16", found[0], found[1].strip())


def collapse(facts: Facts) -> Clue | None:
    """Signs that the loss scale collapsed: the framework gives up, or every step is skipped.

    A search from 65,536 or 2**32 that is still running, or that found its scale, does not count.
    """
    floor = facts.said(SCALE_AT_FLOOR)
    if floor is not None:
        return Clue(floor.text, PROOF, floor.where)
    seen = facts.symptoms
    lowest, row, where = seen.lowest_scale, seen.longest_skips, seen.at("last_skip")
    by_intervals = any(run.counts_intervals and run.skipped_at_once < row for run in facts.runs)
    skips = f"{row} lines in a row count skipped steps" if by_intervals else f"{row} steps skipped in a row"
    if lowest is not None and lowest <= NO_SCALE and row >= ROW and not seen.found_scale:
        return Clue(f"{skips}, down to a scale of {lowest:g}", STRONG + HINT, where)
    if row >= 3 * ROW and (lowest is None or lowest <= STILL_LOW) and not seen.found_scale:
        return Clue(skips, STRONG, where)
    if lowest is not None and lowest <= NO_SCALE and row >= 2 and seen.skipped_last:
        return Clue(f"the log ends in skipped steps at a scale of {lowest:g}", FAIR + HINT, where)
    if lowest is not None and lowest < VANISHED and (seen.bad or seen.skipped):
        return Clue(f"the scale has come down to {lowest:g}", STRONG + HINT, where or seen.at("first_bad"))
    shrinks = seen.contradicted("scale shrinks")
    if shrinks is not None:
        return Clue(shrinks.text, STRONG + HINT)
    said = seen.said("overflows")
    if said is not None:
        return Clue(f"reported: step after step overflows: {said.text[:80]}", STRONG + HINT, said.where)
    return None


def overflow_sign(facts: Facts) -> Clue | None:
    """Signs that values left the range; an earlier failure blames the format more."""
    seen = facts.symptoms
    fallen = collapse(facts)
    if fallen is not None:
        if seen.good_losses >= 2 or seen.good_before >= 2:
            return Clue("steps overflow one after another, after a good start", HINT / 2, fallen.where)
        return Clue("every step overflows until the loss scale reaches its minimum", FAIR, fallen.where)
    broken = went_bad(facts)
    if broken is not None:
        text, where = broken.text, broken.where
        healthy = began_well(facts)
        if healthy is not None:
            return Clue(f"{text}, though {healthy}", HINT / 2 if seen.explodes else HINT, where)
        return Clue(f"{text} from the first logged point", FAIR, where)
    if seen.zero_loss and not seen.good_losses:
        place = seen.at("first_zero", "summary")
        # A loss of 0.0 with live gradients, or in RL, is really 0, not overflowed.
        living = seen.typical_norm is not None and seen.typical_norm > 0
        living = living or bool(facts.metric("reward", "reward_std", "rewards/mean"))
        return None if living else Clue("the loss is logged as 0: NaN losses are filtered from averages", FAIR, place)
    filtered = any(run.kind == "transformers" for run in facts.runs) and not (seen.rewarded or seen.bad_norms)
    if filtered and seen.zero_loss and seen.good_losses <= EARLY and seen.typical_norm is None:
        place = seen.at("first_zero")
        before = f"after {seen.good_losses} losses above 0" if seen.good_losses != 1 else "after one loss above 0"
        return Clue(f"the loss is 0 {before}: transformers logs NaN as 0", FAIR, place)
    return None


def comes_back(facts: Facts) -> bool:
    """Finite losses after NaN ones: the weights survived, so a loss scaler must have refused the steps."""
    seen = facts.symptoms
    return seen.bad_losses >= 1 and seen.good_after >= 2


def against_half(facts: Facts) -> Iterator[Clue]:
    """Signs against fp16: another format in the settings, or a climbing loss before the end."""
    other = facts.context.not_half
    if other is not None:
        yield Clue(f"the run is in {other.value} ({other.text})", REFUTED, other.where)
    seen = facts.symptoms
    if seen.good_before >= 3 and seen.explodes:
        yield Clue("the loss or gradient norm climbs before it breaks", AGAINST / 2, seen.at("first_bad"))


def likely_half(facts: Facts) -> Clue | None:
    """Signs of fp16 without a precision setting: a GPU without bf16, a loss scale, temporary NaN losses."""
    if facts.context.precision is not None or facts.context.weights is not None:
        return None
    seen = facts.symptoms
    if seen.skipped > seen.unscaled_skips or (seen.first_scale is not None and seen.first_scale != 1.0):
        return Clue("a loss scale is in use, as with fp16", HINT, seen.at("first_skip", "start"))
    if comes_back(facts):
        return Clue("NaN losses are followed by finite ones, as with fp16's loss scaler", HINT, seen.at("first_bad"))
    tiny = seen.zero_loss and not seen.bad_norms and seen.largest_lr is not None and 0 < seen.largest_lr < TINY_RATE
    if tiny:
        text = f"at a rate of {seen.largest_lr:.2g} the weights have hardly moved"
        return Clue(text, HINT, seen.at("start"))
    gpu = facts.context.gpu
    if gpu is not None and re.search(WITHOUT_BF16, gpu.text, re.IGNORECASE):
        return Clue(f"the GPU has no bf16 ({gpu.text.strip()})", HINT, gpu.where)
    return None
