"""Adam's eps rounds to zero in the dtype of its states.

## What it means
Adam divides by `sqrt(v) + eps`. With states in fp16, an eps below 6e-8 is stored as 0, and `v`, the mean of squared
gradients, is 0 as soon as gradients are below about 2e-4. The update is then 0/0 = NaN, or a number over zero, and
the weights are lost in the first steps.

## Why it happens
torch's default is `eps=1e-8`, chosen for fp32. With `model.half()` and a plain optimizer the states take the
parameters' dtype. Optimizers with 16-bit or 8-bit states, and fused ones over fp16 parameters, have the same edge.
Very small values (1e-15, 1e-30) copied from other code cause it in fp32 too, where squared gradients underflow below
1e-38.

## How to recognize it
- The first loss is fine, the loss after the first update is NaN, and a gradient norm before it was finite.
- SGD, Adamax or RMSprop train in the same precision, or Adam does with `eps=1e-4`.
- Parameters with zero gradients (unused embedding rows) become NaN first.
- The optimizer's states are float16 and its eps is 1e-8.

## How to fix it
- Keep fp32 states: weights in fp32 under mixed precision (see SF104). This is the true cure.
- plain torch: `torch.optim.AdamW(params, eps=1e-4)` with fp16 states; 1e-6 is enough for bf16 and for fp32 with tiny
  gradients.
- transformers: `adam_epsilon=1e-6`. Lightning and accelerate: the optimizer's own argument.
- DeepSpeed: `"optimizer": {"params": {"eps": 1e-6}}`; its fp16 mode keeps fp32 states, so that 1e-8 is fine there.
- fairseq: `--adam-eps 1e-6`.

## When it is a false alarm
With fp32 states 1e-8 is right, whatever precision the forward pass has. bf16 has fp32's range and holds 1e-8.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.known import number_in
from stayfinite.rules.precision.half_range import half_of, half_weights, overflow_sign
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.going_bad import remark

SMALLEST_HALF = 6e-8
"""The smallest positive fp16 value."""


MADE_BY_STEP = (
    r"(?:after|by|in|during|following|once|calling)\b[^.;\n]{0,30}\b(?:optim\w*\.step|opt\.step|"
    r"optimi[sz]er'?s? step|optimi[sz]er update|the update|weight update|scaler\.step)\b[^;\n]{0,80}\bnans?\b"
)
"""A remark that the step itself turns weights into NaN."""

GRADIENT_FINE = (
    r"\bgrad\w*\b[^.;\n]{0,40}\b(?:finite|fine|normal|ok|okay|valid|not nan|no nans?|without nans?|reasonable)\b"
)
"""A remark that the gradient before it was fine."""


CHOSEN_ADAM = r"(?<![\w-])(?:optim\.|torch\.optim\.)?(?:Nadam|RAdam|AdamW?)\b(?!\w)"
"""Adam chosen in a script; `adamw_torch` is only a framework's default."""

MOMENTS = (
    r"(?:exp_avg_sq|second moments?|optimi[sz]er states?|\bm, ?v\b|\bv ?=)[^;\n]{0,60}"
    r"(?:== ?0|\b0\.? |(?<![\d.])0\b(?![.\d])|\bzeros?\b|float16|\bhalf\b|fp16)"
)
"""A second moment that is 0, or in a format that makes it so."""

OTHER_OPTIMIZER = r"\b(?:sgd|lion|adafactor)\b[^.;\n]{0,30}\b(?:works?|well|fine|ok|gives? \d)"
AFTER_A_STEP = (
    r"\bafter (?:the )?(?:1|one|first|\w+\.step)\b|second iteration|\b1 step\b|first (?:gradient )?(?:step|update)|"
    r"in (?:the )?optimi[sz]er|before update"
)
_EPS = lazy_regex(r"\beps(?:ilon)?\b\D{0,8}(\d(?:\.\d+)?e-\d+)", re.IGNORECASE)

LONGEST = 400
"""Longer lines are not remarks."""

SENSELESS = 1e-12
"""Too small even for fp32."""


def judge(facts: Facts) -> Clues:
    """Clues: fp16 states with an eps they cannot hold; in settings, a tiny eps with fp16 weights."""
    dtype, probed = facts.seen("optimizer.state_dtype"), facts.seen("optimizer.eps")
    half_states = dtype is not None and str(dtype.value).removeprefix("torch.") in ("float16", "half", "fp16")
    if probed is not None and half_states and 0 <= float(probed.value) < SMALLEST_HALF:
        yield Clue(f"eps is {float(probed.value):g}, which rounds to 0 in fp16 states", PROOF, probed.where)
    broken = facts.seen("update.not_finite")
    if probed is not None and float(probed.value) == 0 and broken is not None and broken.value:
        why = "eps is 0: the update is 0/0 where the gradient is 0"
        yield Clue(f"{why}: {', '.join(map(str, broken.value[:4]))}", PROOF, broken.where)
    sign = overflow_sign(facts)
    lost = sign is not None or not (facts.symptoms.healthy or facts.mentioned(r"\bnan\b|\binf\b") is None)
    if lost and facts.mentioned(r"\badam|\beps\b|exp_avg_sq") and facts.mentioned(r"(?<!b)float16|\bhalf\b|fp16"):
        yield from quote(facts.mentioned(MOMENTS), STRONG, "a second moment that fp16 cannot hold: {:.100}")
        yield from quote(facts.mentioned(AFTER_A_STEP), FAIR, "the update itself makes the NaN: {:.100}")
        yield from quote(facts.mentioned(OTHER_OPTIMIZER), STRONG, "an optimizer without it works: {:.100}")
    if lost and (adams := facts.mentioned(r"\badam|optimi[sz]er")) is not None:
        tried = {float(eps) for line in facts.lines if len(line.text) < LONGEST for eps in _EPS.findall(line.text)}
        if len(tried) > 1:
            yield Clue(f"Adam's eps of {min(tried):g} is compared with {max(tried):g}", STRONG + HINT, adams.where)
    if sign is None:
        return
    setting = facts.settings.find("adam_epsilon", "adam_eps", "adam_w_mode_eps", "epsilon", "eps")
    eps = None if setting is None or re.search(r"norm|noise|ln_|clip", setting.plain) else number_in(setting.value)
    half, weights = half_of(facts), half_weights(facts)
    adam = facts.mentioned(r"\badam")
    if half is not None and half.value == "fp16" and adam is not None and (eps is None or eps < SMALLEST_HALF):
        in_weights = weights is not None and weights.value == "fp16"
        yield Clue(
            f"Adam's eps rounds to 0 in fp16 ({half.text.strip()})", FAIR if in_weights else HINT, half.where, risk=True
        )
        if setting is not None and eps is not None:
            # An eps in the optimizer's call was chosen; a dump of all arguments always has one.
            chosen = setting.plain.endswith(("_eps", "eps")) and "epsilon" not in setting.plain
            yield Clue(f"eps is {eps:g}", FAIR if chosen else HINT / 2, setting.where, risk=True)
        yield sign
        chosen_adam = facts.settings.search(CHOSEN_ADAM)
        if chosen_adam is not None and adam_on_half(facts):
            yield Clue(f"Adam works on them directly ({chosen_adam[1].strip()})", FAIR, chosen_adam[0], risk=True)
        made = remark(facts, MADE_BY_STEP)
        if made is not None:
            yield Clue(f"the update itself creates the NaN ({made.text.strip()})", FAIR, made.where)
            if (fine := remark(facts, GRADIENT_FINE)) is not None:
                yield Clue(f"from a finite gradient ({fine.text.strip()})", HINT, fine.where)
    elif setting is not None and eps is not None and eps < SENSELESS and adam is not None:
        yield Clue(f"eps {eps:g} is too small to help", FAIR, setting.where, risk=True)
        yield Clue(sign.text, HINT, sign.where)


def adam_on_half(facts: Facts) -> bool:
    """Whether a script's own Adam updates weights that it converted to fp16.

    If a library loads them in fp16, the missing fp32 copy is the better explanation.
    """
    weights = half_weights(facts)
    loaded = weights is not None and re.search(r"torch_dtype|clip\.load|from_pretrained", weights.text) is not None
    made_half = weights is not None and weights.value == "fp16" and not loaded
    return made_half and facts.context.adapters is None and facts.settings.search(CHOSEN_ADAM) is not None


RULE = Rule(
    code="SF111",
    fix="keep fp32 weights and states, or raise eps to 1e-6 (1e-4 for fp16 states): adam_epsilon=1e-6",
    prior=-5.0,
    beats=("nan-loss", "nan-weights", "fp16-overflow", "cannot-overfit-batch"),
    observes={
        "optimizer.state_dtype": "the dtype of the optimizer's moments, as text",
        "optimizer.eps": "the optimizer's eps",
        "update.not_finite": "the names of parameters that one step of the optimizer makes NaN, of finite gradients",
    },
)
