"""A loss, a rate or a comparison has the wrong sign.

## What it means
A sign is wrong: the optimizer makes worse what it should make better. The loss falls without end, into the negative
thousands and on to minus infinity, or a metric gets worse at the pace at which the loss gets "better".

## Why it happens
A likelihood, a reward or a similarity is returned as it is instead of negated; `-F.cross_entropy(...)`; `maximize=True`
in the optimizer with an ordinary loss; generator and discriminator exchanged; a gradient-reversal layer with the wrong
sign. Or the best checkpoint is picked by the wrong end: `if val_loss > best_loss`, or `score = -loss` with
`if score < best_score`.

## How to recognize it
- A loss that has a lower bound (cross entropy, a squared error: 0) is negative.
- It falls faster and faster, while accuracy sinks below chance.
- Weights and logits grow without end; NaN at last.

## How to fix it
- `loss = -log_prob.mean()`, `loss = -reward`, `loss = 1 - similarity`; `F.cross_entropy` without a minus.
- `torch.optim.AdamW(..., maximize=False)`.
- Check on two rows by hand: the better prediction must have the smaller loss.

## When it is a false alarm
Log-densities (flows, Gaussian heads, VAEs), SI-SNR in decibels, Wasserstein critics, contrastive bounds and policy
losses are negative by right. They level off; a flipped sign does not.
"""

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import RunSeries
from stayfinite.rules.context import LR
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.number_shapes import finite_of, sinks_straight
from stayfinite.rules.numerics.formulas import code_lines, first_line
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.numbers import finite

_NEGATED = lazy_regex(
    r"(?:=|return)\s*-\s*(?:F\.|nn\.functional\.)?(?:cross_entropy|mse_loss|l1_loss|binary_cross_entropy\w*|"
    r"nll_loss|criterion|smooth_l1_loss)\s*\(|\(-loss\)\.backward\(|-\s*loss\.backward\(",
    re.IGNORECASE,
)
_GAIN = lazy_regex(
    r"\bloss\w*\s*=\s*(?:\(|torch\.(?:mean|sum)\(|tf\.reduce_(?:mean|sum)\(|K\.(?:mean|sum)\(|np\.(?:mean|sum)\(|\s)*"
    r"(?:(?:\w*(?:target|label|y|true|gt|onehot|one_hot)\w*)\s*\*\s*(?:\w+\.)*log\(|(?:\w+\.)*\w*log_?probs?\w*\b|"
    r"(?:\w+\.)*(?:log_likelihood|elbo|dice_coef\w*|dice_score|iou_score|ssim|psnr|accuracy)\b|"
    r"\w*(?:reward|return|advantage)s?\w*(?:\.mean\(|\s*\*\s*\w*log_?p))|"
    r"\bloss\s*=\s*['\"]?(?:dice_coef\w*|iou_score|accuracy|ssim|psnr)\b",
    re.IGNORECASE,
)
"""A quantity to maximize used as a loss, without a minus."""
_TURNED = lazy_regex(
    r"=\s*\(?\s*-|-\s*(?:torch|tf|np|K|F)\.|1\.?0?\s*-|\*\s*-\s*1|\(-|\bneg|nll|maximi[sz]e|cross_?entropy|_loss\(|"
    r"loss_f"
)
_LOG_PROBABILITY = lazy_regex(r"log_?p|logprob|reduction\s*=\s*['\"]none", re.IGNORECASE)
"""The negated cross entropy per token is its log-probability, which RL needs."""


def _is_one_of_several(facts: Facts, negated: Line) -> bool:
    """Whether the negated term is added to others, as an adversary or a bonus is: `l_in + weight * l_out`."""
    named = re.match(r"\s*(\w+)\s*=", negated.text)
    if named is None:
        return False
    added = lazy_regex(rf"\+[^=\n]*\b{named[1]}\b|=[^=\n]*\b{named[1]}\b[^=\n]*\+")
    return first_line(code_lines(facts), added) is not None


def _is_learned(facts: Facts, negated: Line) -> bool:
    """Whether the negated value is called a loss, or goes to backward; an attack asks for an input's gradient alone."""
    named = re.match(r"\s*(\w+)\s*=", negated.text)
    if named is None or "loss" in named[1].lower():
        return True
    goes = lazy_regex(rf"\b{named[1]}\b.*\bbackward\(|\bbackward\(.*\b{named[1]}\b|\bloss\w*\s*=.*\b{named[1]}\b")
    return first_line(code_lines(facts), goes) is not None


def judge(facts: Facts) -> Clues:
    """Clues: a sign in the code, or a loss that falls below zero ever faster."""
    negated = first_line(code_lines(facts), _NEGATED, but=_LOG_PROBABILITY)
    if negated is not None and _is_learned(facts, negated) and not _is_one_of_several(facts, negated):
        yield from quote(negated, STRONG + FAIR, "a minus before a loss: {:.140}")
    for rate in facts.settings.all(*LR):
        if (value := finite(rate.value)) is not None and value < 0:
            yield Clue(f"the learning rate is negative: {rate.name} {value:g}", PROOF, rate.where)
            break
    gain = first_line(code_lines(facts), _GAIN, but=_TURNED)
    lowest = facts.symptoms.best_loss
    falls = lowest is not None and lowest < -1e-3 and facts.symptoms.last_loss is not None
    if gain and not negated and (falls or facts.symptoms.trouble):
        yield Clue(f"minimizes a value that should grow: {gain.text.strip()[:140]}", STRONG + HINT, gain.where)
    runaway = _runaway(facts)
    if runaway:
        yield Clue(f"the loss falls below zero ever faster, to {runaway[0]:.4g}", STRONG, runaway[1])
    elif lowest is not None and any(sinks_straight(finite_of(_losses(run))) for run in facts.runs):
        text = f"the loss falls below zero without slowing down, to {lowest:.4g}"
        yield Clue(text, STRONG + HINT, facts.symptoms.at("lowest_loss"))
    yield from quote(facts.symptoms.contradicted("below 0"), STRONG + HINT)
    classification = facts.mentioned(r"cross_?entropy|\bmse\b|mse_loss|bce")
    if classification and lowest is not None and lowest < -1e-3:
        yield Clue(f"a loss that cannot be negative is {lowest:.4g}", FAIR + HINT, classification.where)


def _losses(run: RunSeries) -> list[float]:
    return [value for _, value, _ in run.column("loss")]


def _runaway(facts: Facts) -> tuple[float, str] | None:
    for run in facts.runs:
        losses = [(value, line) for _, value, line in run.column("loss") if math.isfinite(value)]
        values = [value for value, _ in losses]
        only_falls = len(values) >= 4 and max(values) < 0 and values == sorted(values, reverse=True)
        if only_falls and values[-1] < min(-50.0, 10 * values[0]):
            return values[-1], run.where(losses[-1][1])
        if len(losses) < 6 or losses[-1][0] > -50:
            continue
        middle = losses[len(losses) // 2][0]
        if losses[-1][0] < 3 * min(middle, -1.0) and middle < losses[0][0]:
            return losses[-1][0], run.where(losses[-1][1])
    return None


RULE = Rule(
    code="SF608",
    fix=(
        "minimize the negative of the value to maximize (loss = -log_prob.mean()), remove the extra minus, and set "
        "maximize=False"
    ),
    proofs={
        # Whether the loss is a cross entropy or a distance with its sign turned.
        "loss.negated": "the loss is a negated distance: it falls when the model gets worse",
    },
    prior=-4.5,
    beats=("nan-loss", "lr-too-high"),
)
