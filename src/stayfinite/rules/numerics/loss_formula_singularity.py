"""A formula or its gradient is undefined for its input.

## What it means
`log(0)` is minus infinity. Worse are formulas that are finite and whose derivative is not: `sqrt(0)` is 0 and its
derivative is infinite; a norm written as `(x * x).sum().sqrt()` is 0 for x = 0 and its gradient is 0 x infinity, NaN;
`acos(1)` and `x ** 0.5` are the same, as are the vectors of a singular value decomposition with equal singular values.
The forward pass and the loss look healthy, and the first gradient after it is NaN. (Current torch defines the gradient
of `torch.norm`, `cdist`, `std` and `pow` at 0 as 0; older versions returned NaN there.)

## Why it happens
- A hand-written loss takes the log, the root, the norm or a quotient of something that reaches 0 as the model gets
  *better*: a distance between equal vectors, a probability that saturates, an empty union in an IoU, a mask without a
  single element (`sum / count` with count 0).
- The epsilon rounds to zero. Next to 1, fp32 has steps of 1.2e-7, so `clamp(p, 1e-8, 1 - 1e-8)` leaves 1.0 and
  `log(1 - p)` is infinite; in fp16 the step is 1e-3 and 1e-8 itself is 0.
- The guard is at the wrong place: `sqrt(x) + eps` has the derivative of `sqrt(x)`. It belongs inside.
- An eps of 1e-15 keeps the quotient finite and lets a gradient of 1e15 through.

## How to recognize it
- With anomaly detection: `Function 'SqrtBackward0' returned nan values in its 0th output` (also Log, Div, Pow, Norm,
  Acos, Cdist, Svd, Std): proof.
- NaN all at once after a healthy time, without a climb of the loss, in fp32 as well; or one term of the loss is NaN and
  the others are not.
- A loss, or a GAN's discriminator, that falls to next to 0 right before NaN: the log, root or quotient of
  what vanished.
- apex: `ZeroDivisionError: float division by zero`: the scaler halved its scale to 0 because *every* gradient was NaN.

## How to fix it
- Use the function that does it in one piece: `F.binary_cross_entropy_with_logits`, `F.cross_entropy`, `F.log_softmax`,
  `F.logsigmoid`, `torch.logsumexp`, `F.normalize(x, eps=1e-6)`, `F.cosine_similarity`.
- Guard the *input*, with an eps that the dtype can hold (1e-6 for fp32, 1e-3 for fp16): `torch.log(p.clamp_min(1e-6))`,
  `torch.sqrt(x + 1e-6)`, `a / b.clamp_min(1e-6)`, `torch.acos(x.clamp(-1 + 1e-6, 1 - 1e-6))`,
  `(x * x).sum(-1).add(1e-12).sqrt()` for a norm.
- A mean over a mask: `(x * m).sum() / m.sum().clamp_min(1)`.
- Compute the loss in fp32: `with torch.autocast("cuda", enabled=False): loss = criterion(out.float(), y)`.
- To find the line: `torch.autograd.set_detect_anomaly(True)`; Lightning `Trainer(detect_anomaly=True)`.

## When it is a false alarm
`MulBackward0`, `MmBackward0`, `NativeLayerNormBackward0` and their like pass on a NaN that was made elsewhere (0 x
inf): look one step further up. Minus infinity in an attention mask is meant.
"""

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.numerics.formulas import (
    AT_THE_EDGE,
    TOO_SMALL,
    Edge,
    anomaly,
    code_lines,
    edges,
    first_line,
    kind_of,
    lost,
)
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.going_bad import at_first_step
from stayfinite.rules.signs.loss_parts import vanished_part
from stayfinite.rules.signs.post_training import policy_lost, samples
from stayfinite.rules.signs.witness import sudden

_RATIO = r"iou|giou|diou|ciou|dice|tversky|lovasz|jaccard|smape|mape|pearson|correlation|ncc|si[-_]?s[nd]r|r2|f1"
_LOGARITHM = (
    r"focal|kl|kld|kl[-_ ]?div\w*|jsd?|supcon|contrastive|nt_?xent|info_?nce|sinkhorn|poisson|gamma|beta|"
    r"evidential|mdn|"
    r"mixture|gaussian[-_ ]nll|nll_gauss|survival|weibull|likelihood|log-?likelihood|elbo"
)
_ROOT = (
    r"rmse|rms|triplet|cosine|arcface|cosface|ang(?:le|ular)|margin|wing|hausdorff|wasserstein|spectral|barlow|"
    r"vicreg|chamfer|geodesic|gradient[-_ ]penalty|euclidean|norm|distance|charbonnier|frobenius"
)
_OWN = r"custom|own|hand-?written|self-?(?:made|defined)"
_NAMES = rf"{_RATIO}|{_LOGARITHM}|{_ROOT}|{_OWN}"
_FORMULA_LOSS = (
    rf"(?:\b|_)(?:{_NAMES})[-_ ]?(?:\w+[-_ ])?(?:loss|divergence|penalty|criterion)|"
    rf"\b(?:loss|criterion|objective)\b.{{0,30}}\b(?:{_NAMES})\b|"
    r"(?-i:(?:Supcon|SupCon|Focal|Dice|Tversky|I[oO]U|KL|Contrastive|Triplet|Cosine|Poisson|Gaussian)\w*Loss\b)"
)
"""Losses that are a ratio, a logarithm, a root or a custom formula; standard cross entropies are guarded."""
_DENSITY = r"\b(?:v?vae|log_prob)\b"
"""Densities: each contains the logarithm of a standard deviation or a probability."""
_DENSITY_TERMS = lazy_regex(
    r"(?:^|[_/ ])(?:kld?|kl_?div\w*|elbo|recon\w*|nll|log_?likelihood|mi|entropy)(?:[_/ ]|$)", re.IGNORECASE
)
_CLAMPED = "clamp the difference to +-20 before exp(); verl: kl_loss_type=mse; OpenRLHF: --algo.kl.estimator k2"
_ZERO_PRINTED = (
    r"\b(?:sum|std|var|norm|denom\w*|prob\w*|det|area|union|count|num_pos|degree|variance|sigma|min)\b\s*[:=(]+\s*"
    r"(?:tensor\()?-?0(?:\.0*)?(?:\b(?!\.\d)|,)"
)

_ONLY_GRADIENT = (
    r"\b(?:loss|forward(?: pass)?|outputs?|value)\b[^.;\n]{0,20}\b(?:finite|fine|normal|ok|correct|no nan)\b"
    r"(?:[^.;\n]{0,40}\bgrad\w*|\W*$)"
)
LONG_HEALTH = 20
"""Finite points before the first bad one that clear data and settings."""


def judge(facts: Facts) -> Clues:
    """Clues: anomaly detection names it; a poorly guarded formula with a NaN makes it likely."""
    blamed = anomaly(facts)
    bad = lost(facts)
    formulas = edges(facts) if bad or blamed else []
    if blamed:
        yield from _blamed(facts, *blamed, formulas)
    small = first_line(code_lines(facts), TOO_SMALL)
    # Persistent infinite gradients drive the loss scale to 0, by which the next step divides.
    if not (bad or blamed or (small and facts.said(r"zerodivisionerror"))):
        return
    yield from quote(small, STRONG + HINT, "the epsilon rounds to zero: {}", risk=True)
    formula = formulas[0] if formulas else None
    if formula:
        weight = HINT if small else FAIR + HINT + (0.7 if formula.near else 0.0)
        yield Clue(f"unprotected {formula.what}: {formula.text[:140]}", weight, formula.where, risk=True)
    named = facts.mentioned(_FORMULA_LOSS)
    if named and not formula:
        plain = facts.context.half is None and not facts.symptoms.explodes
        yield Clue(
            f"a loss undefined at 0: {named.text.strip()[:120]}", FAIR + HINT if plain else FAIR, named.where, risk=True
        )
    yield from _only_gradient(facts)
    if formula or named:
        yield from quote(facts.said(_ZERO_PRINTED), 2.5, "its input is zero: {:.80}")
    yield from _density(facts, explained=formula is not None or named is not None)
    if at_first_step(facts) and facts.context.half is None:
        yield Clue("NaN or inf before any update, and no fp16", 1.5 * HINT, facts.symptoms.at("first_bad"))
    if sudden(facts):
        yield Clue("sudden NaN after a healthy start", HINT, facts.symptoms.at("first_bad"))
    part = _single_part(facts)
    if part:
        weight = FAIR if sudden(facts) and facts.symptoms.good_before >= LONG_HEALTH else HINT
        yield Clue(f"one term of the loss is NaN or inf, the others are not: {part.text}", weight, part.where)
    vanished = vanished_part(facts)
    yield from quote(vanished, FAIR + HINT, "{}: log, sqrt or division of a value near 0")
    yield from quote(
        facts.said(r"RuntimeWarning: (?:invalid value|divide by zero) encountered in (?!exp)"),
        AGAINST,
        "the warning is from numpy, outside the graph: {:.120}",
    )
    if facts.symptoms.explodes and not vanished:
        yield Clue("loss or gradient norm climbed before", AGAINST / 2, facts.symptoms.at("largest_loss"))


def _blamed(facts: Facts, operator: str, text: str, where: str, formulas: list[Edge]) -> Clues:
    """Evaluate anomaly mode's function. An incoming NaN gives the same line, so the name alone is not proof."""
    kind = kind_of(operator)
    if kind is None:
        if operator.lower().startswith("mul"):
            yield Clue(f"{text} (0 times infinity)", FAIR, where)
        return
    written = any(each.kind == kind for each in formulas)
    overflows = facts.context.half is not None or facts.symptoms.explodes
    weight = PROOF - HINT if written or not overflows else STRONG
    yield Clue(f"{text} ({AT_THE_EDGE[kind]})", weight, where)


def _only_gradient(facts: Facts) -> Clues:
    """A finite loss with a non-finite gradient: the value is fine, the slope is not."""
    seen = facts.symptoms
    if facts.context.half is not None or seen.bad_losses or seen.settles or seen.explodes:
        return
    told = facts.mentioned(_ONLY_GRADIENT)
    if told:
        yield Clue(f"the loss is finite but its gradient is not: {told.text.strip()[:100]}", FAIR + HINT, told.where)
    elif seen.bad_norms and seen.good_losses and seen.first_bad is not None and seen.first_bad.loss is not None:
        place = seen.at("first_bad")
        yield Clue("the loss is finite but the gradient norm is not", HINT, place)


def _density(facts: Facts, *, explained: bool) -> Clues:
    """Likelihood terms that become NaN without a climb."""
    if explained or facts.symptoms.explodes or facts.context.half is not None:
        return
    for run in facts.runs:
        for name, track in run.metrics.items():
            bad = next(
                (at for value, at in zip(track.values, track.lines, strict=True) if not math.isfinite(value)), None
            )
            if bad is not None and _DENSITY_TERMS.search(name) and not policy_lost(run, bad):
                text = f"{name} is NaN or inf: the log of a probability or standard deviation"
                ratio = f"{name} is NaN or inf: likely exp() of a difference of log-probabilities"
                own = samples(run)
                yield Clue(ratio if own else text, FAIR + HINT, run.where(bad), fix=_CLAMPED if own else "")
                return
    yield from quote(facts.mentioned(_DENSITY), FAIR, "a likelihood is trained: {:.100}", risk=True)


def _single_part(facts: Facts) -> Line | None:
    """The only loss term that is NaN."""
    for run in facts.runs:
        parts = {
            name: track
            for name, track in run.metrics.items()
            if "loss" in name and "eval" not in name and "val" not in name
        }
        sick = [name for name, track in parts.items() if track.values and not math.isfinite(track.values[-1])]
        if len(sick) == 1 and len(parts) > 1:
            return Line(run.where(parts[sick[0]].lines[-1]), sick[0])
    return None


RULE = Rule(
    code="SF601",
    fix=(
        "protect the input with an eps that the dtype can hold (log(p.clamp_min(1e-6)), sqrt(x + 1e-6), a / "
        "b.clamp_min(1e-6)), or use the fused form (binary_cross_entropy_with_logits, log_softmax)"
    ),
    prior=-3.5,
    beats=("nan-loss", "loss-collapse", "loss-scale-collapse", "fp16-overflow", "toxic-batch"),
    says={
        r"var has negative entry|linalg\.cholesky.{0,80}not positive[- ]definite": STRONG + HINT,
    },
)
