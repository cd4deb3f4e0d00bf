"""Accumulated gradients are summed instead of averaged.

## What it means
With accumulation over k batches the losses must be divided by k, or the gradient is k times that of one large batch.
Here it is not: the logged loss or the gradient norm is k times too large, clipping bites at every step, and SGD
learns at k times the rate.

## Why it happens
The division is missing in a hand-written loop; or it is done neither by the model nor by the trainer, because each
expects it of the other (a model that takes `num_items_in_batch` and ignores it; a custom loss in a Trainer).
transformers 4.46 changed who divides, and some versions printed or trained on sums.

## How to recognize it
- Training loss over evaluation loss is about `gradient_accumulation_steps`, from the beginning on.
- A fine-tuned language model that starts above 13: a mean over tokens cannot exceed ln(vocabulary), about 12.
- The gradient norm changes in proportion to k when only k is changed.
- In the script: `loss.backward()` in an accumulation loop without `/ k`.

## How to fix it
- plain torch: `(loss / k).backward()`; for tokens: sum the losses and divide by the number of labeled tokens of all
  k batches.
- accelerate: `with accelerator.accumulate(model):` and `accelerator.backward(loss)` divide for you; do not divide
  again.
- Lightning: `Trainer(accumulate_grad_batches=k)` divides; in manual optimization you do.
- DeepSpeed: `engine.backward(loss)` divides by `gradient_accumulation_steps`.
- transformers: a current version; for an own `compute_loss`, use `num_items_in_batch` or set
  `model_accepts_loss_kwargs = False`.

## When it is a false alarm
Dropout, label smoothing, auxiliary losses and augmentation make the training loss larger than the evaluation loss,
rarely by exactly k. With Adam a constant factor is harmless except for clipping and eps.
"""

import math
import re
from statistics import median

from stayfinite.core.series import RunSeries
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.known import number_in
from stayfinite.rules.optimization.loop_code import BACKWARD, calls
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

CLOSE = 0.2
"""Relative tolerance of the loss ratio around k."""


OTHER_K = (
    r"(?:accum\w*(?:[_ ](?:grad\w*|batch\w*|steps?))*|\bGA|\bga)\s*(?:of|is|to|=|:|at)?\s*(\d+)\b(?!\.\d)|"
    r"(?:without|no|disabl\w+) (?:gradient )?accum\w*"
)
"""The k of another run, in words."""


def judge(facts: Facts) -> Clues:
    """Clues: a factor k between training and evaluation loss or between runs, or a loss that is not divided."""
    setting = facts.settings.find(
        "gradient_accumulation_steps", "accumulate_grad_batches", "accumulation_steps", "update_freq", "grad_accum"
    )
    k = None if setting is None else number_in(setting.value)
    yield from quote(_several_runs(facts), PROOF)
    yield from _preferences(facts)
    if setting is None or k is None or k < 2:
        return
    losses = [value for run in facts.runs for _, value, _ in run.column("loss") if math.isfinite(value) and value > 0]
    evals = [
        value
        for value, _ in facts.metric("eval_loss", "val_loss", "valid_loss", "validation_loss")
        if math.isfinite(value) and value > 0
    ]
    if losses and evals:
        # Losses around the first evaluations: the ratio exists from the start.
        factor = median(losses) / median(evals)
        if abs(factor / k - 1) <= CLOSE and factor >= 1.8:
            yield Clue(
                f"the training loss is {factor:.3g} times the evaluation loss, and k is {k:g}", STRONG, setting.where
            )
        elif k >= 4 and factor < 1.5:
            yield Clue("training and evaluation loss agree", AGAINST, setting.where)
    starts = _said_of_other_runs(facts, losses[0], k) if losses else None
    if starts is not None:
        yield Clue(
            f"the loss starts at {losses[0]:.4g} with k = {k:g}, and proportionally lower with a smaller k",
            STRONG + HINT,
            starts,
        )
    backwards = [call for call in calls(facts, BACKWARD) if "accelerator" not in call.text and "/" not in call.text]
    divided = facts.settings.search(
        r"loss\s*/=|loss\s*=\s*loss\s*/|/\s*(?:\w*accum\w*|gradient_accumulation_steps|k\b)"
    )
    if backwards and divided is None and facts.settings.search(r"%\s*\w*accum\w*|%\s*gradient_accumulation_steps"):
        yield Clue("the loss is not divided before backward", STRONG, backwards[0].where, risk=True)


def _preferences(facts: Facts) -> Clues:
    """The loss of preferences begins at ln 2, as both models are the same; a multiple of it is a sum."""
    start = facts.symptoms.first_loss
    if start is None or not any("rewards/chosen" in run.metrics for run in facts.runs):
        return
    times = round(start / math.log(2))
    alone = any(abs(loss / math.log(2) - 1) <= CLOSE / 10 for run in facts.runs for _, loss, _ in run.column("loss"))
    if times > 1 and alone and abs(start / math.log(2) - times) <= CLOSE * times / 10:
        text = f"the first loss is {start:.4g}, {times} times ln 2, and others are ln 2: {times} batches are summed"
        yield Clue(text, STRONG + FAIR, facts.symptoms.at("start"))


def _several_runs(facts: Facts) -> Line | None:
    """Runs with several k, one per line, whose losses are proportional to k."""
    for run in facts.runs:
        losses = {point.line: point.loss for point in run.points if point.loss is not None and point.loss > 0}
        for name, track in run.metrics.items():
            if re.search(r"accum\w*$|acc_(?:steps|batches)$|^ga$|grad\w*_?acc$", name, re.IGNORECASE) is None:
                continue
            pairs = [
                (k, losses[line])
                for k, line in zip(track.values, track.lines, strict=True)
                if k >= 1 and k.is_integer() and math.isfinite(losses.get(line, math.inf))
            ]
            if _proportional(pairs):
                (low_k, low), (high_k, high) = min(pairs), max(pairs)
                text = f"the loss is {low:.4g} with k = {low_k:g} and {high:.4g} with k = {high_k:g}"
                return Line(run.where(track.lines[0]), text)
        twice = _same_points_twice(run)
        if twice is not None and facts.mentioned(r"accum|\bGA\b") is not None:
            return Line(twice, "two runs with equal epochs and rates differ in loss by a whole factor")
    told = []
    for where, text in facts.settings.notes:
        k_of = re.search(OTHER_K, text, re.IGNORECASE)
        loss_of = re.search(r"\bloss\b\D{0,16}(\d+(?:\.\d+)?)", text, re.IGNORECASE)
        if k_of is not None and loss_of is not None:
            told.append((where, float(k_of.group(1) or 1), float(loss_of.group(1))))
    if _proportional([(k, loss) for _, k, loss in told]):
        return Line(told[0][0], "runs with several k have losses proportional to k")
    return None


def _same_points_twice(run: RunSeries) -> str | None:
    """Whether a log has the same epochs and rates twice, with losses that differ by one integer factor."""
    first: dict[tuple[float, float], float] = {}
    factors, where = [], ""
    for point in run.points:
        if point.epoch is None or point.lr is None or point.loss is None or not point.loss > 0:
            continue
        earlier = first.setdefault((point.epoch, point.lr), point.loss)
        if earlier != point.loss and math.isfinite(earlier) and math.isfinite(point.loss):
            factors.append(max(earlier, point.loss) / min(earlier, point.loss))
            where = where or run.where(point.line)
    if len(factors) < 2 or not all(map(math.isfinite, factors)):
        return None
    whole = round(median(factors))
    return where if whole >= 2 and all(abs(factor / whole - 1) <= CLOSE / 2 for factor in factors) else None


def _proportional(pairs: list[tuple[float, float]]) -> bool:
    if len(pairs) < 2 or min(loss for _, loss in pairs) <= 0:
        return False
    (low_k, low), (high_k, high) = min(pairs), max(pairs)
    return high_k >= 2 * low_k > 0 and abs(high / low / (high_k / low_k) - 1) <= 2 * CLOSE


def _said_of_other_runs(facts: Facts, first: float, k: float) -> str | None:
    """A remark about another run's k and loss, proportional to this run's."""
    for where, text in facts.settings.notes:
        if re.search(OTHER_K, text, re.IGNORECASE) is None and "accum" not in text.lower():
            continue
        if _in_proportion(text, first, k):
            return where
        for number in re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)", text):
            if float(number) > 0 and abs(first / float(number) / k - 1) <= CLOSE / 4:
                return where
    return None


def _in_proportion(text: str, loss: float, k: float) -> bool:
    """Whether a remark names another k and a proportional loss."""
    named = re.search(OTHER_K, text, re.IGNORECASE)
    if named is None or re.search(r"\bloss", text, re.IGNORECASE) is None:
        return False
    other = float(named.group(1)) if named.group(1) else 1.0
    rest = text[: named.start()] + text[named.end() :]
    values = [float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w]|\.\d)", rest)]
    return any(
        value > 0
        and other > 0
        and k >= 2 * other
        and loss >= 1.8 * value
        and 0.4 <= (loss / value) / (k / other) <= 2.5
        for value in values
    )


RULE = Rule(
    code="SF210",
    fix="divide the loss by the number of accumulated batches (loss / k), or let the framework do it once",
    beats=("high-initial-loss", "exploding-gradient", "lr-too-high"),
    warns={
        r"unable to scale loss because of type": PROOF,
    },
)
