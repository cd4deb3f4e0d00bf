"""How high a learning rate may be, by optimizer and batch size."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.numerals import plain_numbers
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.known import Known, number_in
from stayfinite.rules.rule import FAIR, HINT, STRONG, Clue, quote
from stayfinite.rules.signs.going_bad import went_bad

DETECTION = (
    r"mm(?:det|cv|seg|ocr|pose|rotate|yolo|3d)|mmdetection|detectron|"
    r"(?:mask|faster|cascade|fast|rotated|oriented|sparse)[ _-]?r?-?cnn|retinanet|\bfpn\b|_fpn_|\byolo|efficientdet|"
    r"\bssd(?:\b|\d{3})|yolact|(?-i:SOLVER)|IMS_PER_BATCH|NUM_GPUS|(?:samples|imgs|images)_per_gpu|[-_][123]x(?:[-_.]|\b)"
)
"""Frameworks and models whose recipes assume eight GPUs."""

ONE_CARD = r"\bultralytics\b"
"""Detectors for one GPU that warm up and adapt rate and decay to the batch."""

LOW_FOR_BOXES = 1e-4
"""Detectors use SGD at about 0.02 and AdamW at 1e-4 and above."""

TRANSFORMERS = r"\btransformer(?!s\b)|\bfairseq\b|\b\w*(?:bert|gpt-?\d?)\b|\bwhisper\b|\bdiffusion\b|\bunet\b"
"""Trained with Adam or AdamW unless stated otherwise."""

_PARTS = lazy_regex(
    r"loss_(?:rpn_\w+|bbox|box_reg|cls|classifier|objectness|mask|dfl|obj|centerness|iou)|"
    r"(?:rpn|roi|bbox|box)_\w*loss|(?:hm|wh|off)_loss",
    re.IGNORECASE,
)

_LESS = lazy_regex(r"(?:batch|gpu)\w*\W{0,4}\D{0,20}?(\d+)\s*(?:->|=>|→|\bto\b|instead of)\s*(\d+)", re.IGNORECASE)
GPUS = (
    "gpus", "num_gpus", "ngpus", "n_gpu", "n_gpus", "gpu_num", "gpu_count", "nproc_per_node", "num_gpu", "devices",
)  # fmt: skip
_OPTIMIZER = lazy_regex(
    r"\b(?:adam\w*|nadam|radam|rmsprop|sgd|adafactor|prodigy|d-?adapt\w*|lamb|lars)\b", re.IGNORECASE
)
_RATE = lazy_regex(
    r"\b(?:lr0|lr_?max|(?:init|start|initial)_(?:lr|learning_rate)|(?:lr|"
    r"learning_rate)_init)\b[\s:=]{1,3}(\d*\.?\d+(?:e-?\d+)?)|"
    r"\b(?:\w*Optimizer|SGD|N?Adam\w*|RMSprop)\(\s*(?:learning_rate\s*=\s*)?(\d*\.?\d+(?:e-?\d+)?)\s*[,)]",
    re.IGNORECASE,
)
"""Other names of the rate, and the first argument of optimizers in Keras and TensorFlow."""
_TOLD_RATE = lazy_regex(
    r"^(?!.*\b(?:tr(?:y|ied|ying)|lower\w*|reduc\w+|decreas\w+|smaller|instead|works?|help\w*|fixed|warm-?up|decay\w*|drop\w*|should|"
    r"paper|default|from|between)\b).*\b(?:lr|learning[- ]?rate)\b(?: (?:is|was|of|at|used is|set to|equal to)){0,2}"
    r"[\s:=(~]{1,3}(\d*\.?\d+(?:e-?\d+)?)(?![\d%]|\.\d)",
    re.IGNORECASE,
)
"""A rate that a person states, and not one of those that were tried."""
_OWN_SCALE = lazy_regex(r"adafactor|prodigy|dadapt|lars|lamb|schedule_?free", re.IGNORECASE)
ADAMS_OWN = 1e-3
"""Adam's default: right for many small models, too high for transformers."""
_LIMITS = {
    "adam": ((1e-2, STRONG), (3e-3, 2.5), (1e-3, 1.5)),
    "sgd": ((1.0, 3.0), (0.1, FAIR), (0.02, HINT)),
    "": ((0.5, 3.0), (0.05, FAIR), (0.01, HINT)),
}


def set_too_high(facts: Facts) -> Iterator[Clue]:
    """Settings that make the rate too high: its size, the batch, disabled clipping or warmup."""
    context, seen = facts.context, facts.symptoms
    optimizer = optimizer_of(facts)
    detection = detects(facts)
    adam = re.search(r"adam|rmsprop", optimizer, re.IGNORECASE) is not None or (
        not optimizer and (context.family is not None or facts.mentioned(TRANSFORMERS) is not None)
    )
    limits = _LIMITS["adam" if adam else "sgd" if detection or "sgd" in optimizer.lower() else ""]
    known = rate_of(facts)
    rate = float(known.value) if known is not None else seen.largest_lr
    where = known.where if known is not None else seen.at("first_bad")
    if rate is not None and not _OWN_SCALE.search(optimizer):
        weight = next((weight for limit, weight in limits if rate >= limit), 0.0)
        if adam and rate == ADAMS_OWN and context.family is None and facts.mentioned(TRANSFORMERS) is None:
            weight = 0.0
        if not weight and context.family is not None and context.adapters is None and rate >= 2e-4:
            weight = HINT
        if weight:
            yield Clue(
                f"a learning rate of {rate:g} is high{' for ' + optimizer if optimizer else ''}",
                weight,
                where,
                risk=True,
            )
    if detection and rate is not None and rate < LOW_FOR_BOXES:
        yield Clue(f"a learning rate of {rate:g} is low", -HINT, where)
    if detection and went_bad(facts) is not None and not _for_one_card(facts):
        yield Clue("detection recipes set the rate for eight GPUs", 1.5 * HINT, risk=True)
        if (parts := _all_parts_lost(facts)) is not None:
            yield Clue("all parts of the detection loss break together", HINT, parts)
        if (several := _devices(facts)) is not None:
            yield Clue(f"the number of GPUs is mentioned ({several.text})", HINT / 2, several.where, risk=True)
    sample = facts.mentioned(r"\blearningRates?PerSample\s*=\s*(?:0?\.[01-9]\d*|[1-9])")
    if sample is not None and re.search(r"=\s*(?:0?\.(?:0[1-9]|[1-9])|[1-9])", sample.text):
        yield Clue(f"the rate is multiplied by the batch: {sample.text.strip()[:60]}", FAIR, sample.where, risk=True)
    yield from quote(
        _smaller_batch(facts, detection), FAIR + HINT, "the batch is smaller than the recipe's ({})", risk=True
    )
    for known, what in ((context.clip, "gradients are not clipped"), (context.warmup, "there is no warmup")):
        if known is not None and known.value == 0:
            yield Clue(f"{what} ({known.text})", HINT / 2, known.where, risk=True)


def detects(facts: Facts) -> bool:
    """Whether it trains a detector, by framework, model or loss terms."""
    if facts.mentioned(DETECTION) is not None or any(run.kind.startswith("mm") for run in facts.runs):
        return True
    return any(_PARTS.fullmatch(name) is not None for run in facts.runs for name in run.metrics)


def _for_one_card(facts: Facts) -> bool:
    return any(run.kind == "ultralytics" for run in facts.runs) or facts.mentioned(ONE_CARD) is not None


def _all_parts_lost(facts: Facts) -> str | None:
    for run in facts.runs:
        first: dict[int, list[float]] = {}
        for name, track in run.metrics.items():
            if "loss" in name.lower():
                for value, line in zip(track.values, track.lines, strict=True):
                    first.setdefault(line, []).append(value)
        for line, values in sorted(first.items()):
            lost = [value for value in values if not math.isfinite(value)]
            if lost:
                return run.where(line) if len(values) >= 2 and len(lost) == len(values) else None
    return None


def _devices(facts: Facts) -> Line | None:
    known = facts.settings.find(*GPUS)
    return None if known is None else Line(known.where, f"{known.name}: {known.value}")


def rate_of(facts: Facts) -> Known | None:
    """The configured rate under any name, or an optimizer's first argument."""
    if facts.context.lr is not None:
        return facts.context.lr
    for where, text in facts.settings.texts():
        found = _RATE.search(plain_numbers(text))
        if found is not None:
            return Known(float(found.group(1) or found.group(2)), where, text.strip())
    for line in facts.written:
        if (told := _TOLD_RATE.search(plain_numbers(line.text))) is not None:
            return Known(float(told[1]), line.where, line.text.strip()[:100])
    return None


def optimizer_of(facts: Facts) -> str:
    """The optimizer as set or mentioned; empty if unknown."""
    if facts.context.optimizer is not None:
        return str(facts.context.optimizer.value)
    for _, text in facts.settings.texts():
        found = _OPTIMIZER.search(text)
        if found is not None:
            return found.group()
    told = (found for line in facts.written for found in _OPTIMIZER.finditer(line.text))
    named = {found.group().lower(): found.group() for found in told}
    return named.popitem()[1] if len(named) == 1 else ""


def _smaller_batch(facts: Facts, detection: bool) -> Line | None:
    for where, text in facts.settings.texts():
        for before, after in _LESS.findall(text):
            smaller = int(before) < int(after) if "instead of" in text.lower() else int(after) < int(before)
            if smaller:
                return Line(where, text.strip())
    if not detection:
        return None
    few = facts.settings.find(*GPUS)
    if few is not None and number_in(few.value) in (1.0, 2.0):
        return Line(few.where, f"{few.name}: {few.value}")
    found = facts.mentioned(r"\b(?:single|one|only 1|1x?) ?gpu\b")
    # `a single GPU is fine` is about another run.
    elsewhere = found is not None and any(world.text == found.text.strip() for world in facts.reported_experiments)
    return None if elsewhere else found
