"""What the numbers of a named quantity can be: its bounds, and the values it has where a model has collapsed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import RunSeries
from stayfinite.rules.number_shapes import finite_of

LAST = 3
"""Values in a row that are no accident."""
ENOUGH = 5
"""Values of a quantity that has collapsed, with those before."""

_SHARE = lazy_regex(r"(?:^|[_/])(?:acc(?:uracy)?|f1|m?iou|dice|dsc|recall|precision)(?:$|[_/@])")
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
"""An area in percent is not as low: half of it is a coin's."""
REVERSED = 0.35
"""An area below this orders better than a coin, upside down."""
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


def beyond_bounds(run: RunSeries, losses: Sequence[float]) -> str:
    """A number outside of what its quantity can be, in any unit."""
    small = len(losses) > LAST and 0 < losses[-1] <= min(SMALL, losses[0] / 2)
    coded = any(map(_AUTOENCODER.search, run.metrics))
    named = {name: track.values for name, track in run.metrics.items()}
    for name, all_values in (named | {run.loss_name: list(losses)}).items():
        values = finite_of(all_values)[-LAST:]
        if len(values) < LAST:
            continue
        low, high, said = min(values), max(values), f"{name} is {values[-1]:.4g}"
        if _AREA.search(name) and high <= REVERSED and low > 0 and len(all_values) > LAST:
            return f"{said}: a coin has 0.5, so the order is reversed"
        if _AREA.search(name) and low > 1.001 and high < HIGH_AREA:
            return f"{said}: an area under a curve is at most 1, and in percent at least 50 for a coin"
        if _AT_MOST_1.search(name) and low > 1.001 and high <= PERCENT:
            return f"{said}: it is at most 1"
        if (_NEVER_NEGATIVE.search(name) and high < 0) or (coded and _DIVERGENCE.search(name) and high < -0.01):
            return f"{said}: it is never negative"
        if small and _SHARE.search(name) and low > 1.001 and high <= PERCENT:
            return f"{said} at a loss of {losses[-1]:.4g}: a share is at most 1"
    return ""


def collapsed(run: RunSeries) -> str:
    """A spread, an entropy or a count of what is in use that has fallen to nothing and stays there."""
    for name, track in run.metrics.items():
        values = finite_of(track.values)
        if len(values) < ENOUGH:
            continue
        first, last = max(values[: len(values) // 3]), values[-LAST:]
        spread = _SPREAD.search(name) or (_OF_POLICY.search(name) and not _at_best(run))
        gone = bool(spread) and 0 <= median(last) <= NOTHING * first and first > 0
        one = _COUNTED.search(name) is not None and first >= MANY and max(last) <= 1
        if gone or one:
            return f"{name} falls from {first:.3g} to {last[-1]:.3g}"
        whole = _ALL.search(name) is not None and min(last) >= 0.99 and max(last) <= 1
        if whole or (_DROPPED.search(name) and min(last) >= 0.5 and max(last) <= 1):
            return f"{name} is {last[-1]:.3g}"
        if _MATCHES.search(name) and not any(values):
            return f"{name} is 0 on every line: no target is assigned"
        if _CODES.search(name) and _quantizes(run, name) and max(last) <= 1.001:
            return f"{name} is {last[-1]:.3g}: one code stands for everything"
    return ""


def _quantizes(run: RunSeries, name: str) -> bool:
    """Whether a perplexity is that of a codebook."""
    return any(_QUANTIZER.search(each) for each in run.metrics if each != name)


def _at_best(run: RunSeries) -> bool:
    """Whether a reward ends near the best that it was: a policy that knows what to do is sure of it."""
    for name, track in run.metrics.items():
        values = finite_of(track.values)
        if _REWARD.search(name) and values:
            return max(values[-LAST:]) >= max(values) - 0.05 * (max(values) - min(values))
    return False


def work_stops(run: RunSeries, points: Sequence[float]) -> str:
    """A throughput that falls to 0 and stays there."""
    rates = {name: finite_of(track.values) for name, track in run.metrics.items() if _WORK.search(name)}
    for name, values in {"throughput": list(points), **rates}.items():
        if len(values) >= ENOUGH and max(values) > 1 and not any(values[-LAST:]):
            return f"{name} falls from {max(values):.4g} to 0"
    return ""


_WORK: re.Pattern[str] = lazy_regex(r"(?:_per_s(?:ec(?:ond)?)?|/s(?:ec)?|_s(?:ec)?)$|^(?:tps|wps|sps|fps|throughput)$")


_SCALE = lazy_regex(r"(?:^|[_/])(?:scale|scaler|amp)$")


def _is_power_of_two(value: float) -> bool:
    """Whether it is one, to the digits of a print."""
    return value > 0 and abs(math.log2(value) - round(math.log2(value))) < 1e-3


def scale_shrinks(run: RunSeries) -> str:
    """A loss scale that only falls, to where it protects nothing: the scaler meets an overflow again and again."""
    scales = finite_of([point.loss_scale for point in run.points if point.loss_scale is not None])
    if not scales:  # a name that may be another's tells by its powers of two
        named = (finite_of(track.values) for name, track in run.metrics.items() if _SCALE.search(name))
        scales = next((each for each in named if all(map(_is_power_of_two, each))), [])
    only_falls = all(before >= after for before, after in pairwise(scales))
    if len(scales) >= ENOUGH and only_falls and 0 <= scales[-1] < min(0.1, NOTHING * scales[0]):
        return f"the loss scale falls from {scales[0]:.4g} to {scales[-1]:.3g} and never rises"
    return ""
