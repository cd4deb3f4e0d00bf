"""What the numbers of a named quantity can be: its bounds, and the values it has where a model has collapsed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Point, RunSeries
from stayfinite.rules.named_numbers import Numbers, Odd, column, numbers_in

LAST = 3
"""Values in a row that are no accident."""
ENOUGH = 5
"""Values of a quantity that has collapsed, with those before."""

_SHARE = lazy_regex(r"(?:^|[_/])(?:acc(?:uracy)?|f1|m?iou|dice|dsc|recall|precision)(?:$|[_/@](?!loss))")
_AREA = lazy_regex(r"(?<!pr)(?:^|[_/])(?:roc_?)?(?:auc|auroc)(?:$|[_/])")
_AT_MOST_1 = lazy_regex(
    r"(?:^|[_/])(?:cos(?:ine)?_?sim(?:ilarity)?|r2(?:_score)?|r_squared|explained_variance)(?:$|[_/])"
)
_NEVER_NEGATIVE = lazy_regex(
    r"(?:^|(?:train|val|valid|test|eval)[_/])(?:r?mse|mae|mape|bce|ce|ppl|perplexity|cross_?entropy\w*)(?:$|_loss$)"
)
_DIVERGENCE = lazy_regex(r"(?:^|[_/])kld?(?:$|_(?:loss|div\w*)$)")
_AUTOENCODER = lazy_regex(r"(?:^|[_/])(?:rec|recon\w*|elbo)(?:$|[_/])")

HIGH_AREA = 30.0
"""An area in percent is hardly below 50, which is chance."""
REVERSED = 0.35
"""An area below this ranks better than chance, in reverse."""
PERCENT, SMALL = 2.5, 1.0
"""A share above 1 that would be a few percent, and a loss at which far more is right."""

_SPREAD = lazy_regex(
    r"^std$|(?:^|[_/])(?:act\w*|feat\w*|emb\w*|hidden\w*|z|latent\w*|out\w*|logits?|repr\w*|pred\w*)_(?:std|var\w*)$|"
    r"(?:router|gate|gating|attn|attention|expert|code\w*)_entropy$|(?:^|[_/])code\w*_(?:perplexity|usage)$"
)
_OF_POLICY = lazy_regex(r"(?:^|[_/])entropy$")
_REWARD = lazy_regex(r"(?:^|[_/])(?:\w+_)?(?:rewards?|return|score|ret)(?:$|[_/]mean$)")
_COUNTED = lazy_regex(r"(?:^|[_/])(?:\w*rank|active_\w+|\w*used_codes?|codes_used|unique_codes?)$")
_ALL = lazy_regex(r"(?:^|[_/])(?:dead_\w*?(?:frac\w*|ratio|share)|(?:frac\w*|ratio)_dead\w*|max_(?:expert_)?load)$")
_DROPPED = lazy_regex(r"(?:^|[_/])(?:drop(?:ped)?_tok\w*|tok\w*_dropped)$")
_MATCHES = lazy_regex(r"(?:^|[_/])(?:num_(?:pos\w*|fg|foreground)|pos_num|n_pos\w*)$")
_QUANTIZER = lazy_regex(r"(?:^|[_/])(?:rec|recon\w*|commit\w*|vq\w*|codebook\w*|num_codes)(?:$|[_/])")
_CODES = lazy_regex(r"(?:^|_)(?:perplexity|used_codes?|codes_used)$")
NOTHING, MANY = 1e-3, 8
"""What is left of a spread that has collapsed, and a count from which one of 1 is far."""


_WORK = lazy_regex(r"(?:_per_s(?:ec(?:ond)?)?|/s(?:ec)?|_s(?:ec)?)$|^(?:tps|wps|sps|fps|throughput)$")
_SCALE = lazy_regex(r"(?:^|[_/])(?:scale|scaler|amp)$")


def beyond_bounds(run: RunSeries, points: Sequence[Point]) -> Odd | None:
    """A number outside of what its quantity can be, in any unit."""
    losses = column(points, "loss", run.loss_name)
    last_loss = losses.values[-1] if losses.values else 0.0
    small = len(losses.values) > LAST and 0 < last_loss <= min(SMALL, losses.values[0] / 2)
    coded = any(map(_AUTOENCODER.search, run.metrics))
    for each in (*numbers_in(run), losses):
        name, values = each.name, each.values[-LAST:]
        if len(values) < LAST:
            continue
        low, high, said = min(values), max(values), f"{name} is {values[-1]:.4g}"
        above = each.since(lambda value: value > 1.001)
        if _AREA.search(name) and low > 0 and high <= REVERSED and len(each.values) > LAST:
            return Odd(
                f"{said}: chance is 0.5, so the ranking is reversed", each.since(lambda value: 0 < value <= REVERSED)
            )
        if _AREA.search(name) and low > 1.001 and high < HIGH_AREA:
            return Odd(f"{said}: an AUC is at most 1; in percent, chance is 50", above)
        if _AT_MOST_1.search(name) and low > 1.001 and high <= PERCENT:
            return Odd(f"{said}: it is at most 1", above)
        if coded and _DIVERGENCE.search(name) and high < -0.01:
            return Odd(f"{said}: it is never negative", each.since(lambda value: value < 0))
        if small and _SHARE.search(name) and low > 1.001 and high <= PERCENT:
            return Odd(f"{said} at a loss of {last_loss:.4g}: a share is at most 1", above)
    return None


def below_zero(run: RunSeries, points: Sequence[Point]) -> Odd | None:
    """A distance or a cross entropy below 0, to the end."""
    for each in (*numbers_in(run), column(points, "loss", run.loss_name)):
        if _NEVER_NEGATIVE.search(each.name) and len(each.values) >= LAST and max(each.values[-LAST:]) < 0:
            text = f"{each.name} is {each.values[-1]:.4g}: it is never negative"
            return Odd(text, each.since(lambda value: value < 0))
    return None


def collapsed(run: RunSeries) -> Odd | None:
    """A spread, an entropy or a count of what is in use that has fallen to nothing and stays there."""
    found = (_collapse(run, each) for each in numbers_in(run) if len(each.values) >= ENOUGH)
    return next(filter(None, found), None)


def _collapse(run: RunSeries, each: Numbers) -> Odd | None:
    name, values = each.name, each.values
    first, last = max(values[: len(values) // 3]), values[-LAST:]
    spread = _SPREAD.search(name) or (_OF_POLICY.search(name) and not _at_best(run))
    left = NOTHING * first if spread else 1.0
    gone = bool(spread) and first > 0 and 0 <= median(last) <= left
    if gone or (_COUNTED.search(name) and first >= MANY and max(last) <= 1):
        return Odd(f"{name} falls from {first:.3g} to {last[-1]:.3g}", each.since(lambda value: value <= left))
    least = 0.99 if _ALL.search(name) else 0.5 if _DROPPED.search(name) else math.inf
    if min(last) >= least and max(last) <= 1:
        return Odd(f"{name} is {last[-1]:.3g}", each.since(lambda value: value >= least))
    if _MATCHES.search(name) and not any(values):
        return Odd(f"{name} is 0 on every line: no target is assigned", each.lines[0])
    quantizes = any(_QUANTIZER.search(other) for other in run.metrics if other != name)
    if quantizes and _CODES.search(name) and max(last) <= 1.001:
        text = f"{name} is {last[-1]:.3g}: codebook collapse, only one code is used"
        return Odd(text, each.since(lambda value: value <= 1.001))
    return None


def _at_best(run: RunSeries) -> bool:
    """Whether a reward ends near the best that it was: a policy that knows what to do is sure of it."""
    rewards = next((each.values for each in numbers_in(run) if _REWARD.search(each.name)), None)
    return rewards is not None and max(rewards[-LAST:]) >= max(rewards) - 0.05 * (max(rewards) - min(rewards))


def work_stops(run: RunSeries, points: Sequence[Point]) -> Odd | None:
    """A throughput that falls to 0 and stays there."""
    for each in (column(points, "throughput"), *numbers_in(run)):
        values = each.values
        if _WORK.search(each.name) and len(values) >= ENOUGH and max(values) > 1 and not any(values[-LAST:]):
            return Odd(f"{each.name} falls from {max(values):.4g} to 0", each.since(lambda value: value == 0))
    return None


def scale_shrinks(run: RunSeries) -> Odd | None:
    """A loss scale that only falls, to where it protects nothing: the scaler meets an overflow again and again."""
    # A name that may be another's tells by its powers of two.
    named = (each for each in numbers_in(run) if _SCALE.search(each.name) and all(map(_is_power_of_two, each.values)))
    for scale in (column([*run.points], "loss_scale"), *named):
        values = scale.values
        only_falls = all(before >= after for before, after in pairwise(values))
        if len(values) >= ENOUGH and only_falls and 0 <= values[-1] < min(0.1, NOTHING * values[0]):
            text = f"the loss scale falls from {values[0]:.4g} to {values[-1]:.3g} and never rises"
            return Odd(text, scale.since(lambda value: value < 1))
    return None


def _is_power_of_two(value: float) -> bool:
    """Whether it is one, to the digits of a print."""
    return value > 0 and abs(math.log2(value) - round(math.log2(value))) < 1e-3
