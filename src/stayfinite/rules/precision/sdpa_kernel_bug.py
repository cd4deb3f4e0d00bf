"""One attention kernel returns NaN where another is finite.

## What it means
`scaled_dot_product_attention` chooses among kernels: flash, memory-efficient, cuDNN, and plain math. They compute the
same thing, but one of them returns NaN for this input, most often in the backward pass: the loss is finite and the
gradient is not. The same step with eager or math attention is fine.

## Why it happens
Fused kernels treat the edges differently: rows that are masked whole (padding on the left, batches of unequal
lengths), additive masks with -inf, head sizes or strides that few people use, sliding windows, packed sequences. Bugs
of this kind were fixed in torch, flash-attention, xformers and ROCm time and again, and they depend on the version.

## How to recognize it
- `grad_norm: nan` while the loss of that step is still finite, in bf16 or fp32, early in a run, with more than one
  row per batch.
- `Function 'ScaledDotProductEfficientAttentionBackward0' returned nan values` under anomaly detection.
- It depends on the card (kernels differ by compute capability, number formats do not).
- It goes away with `attn_implementation="eager"`, with batch size 1, or with another version of torch or
  flash-attention.

## How to fix it
Change the kernel first (that is the test, too), then the version.

- transformers: `from_pretrained(name, attn_implementation="eager")`, or `"sdpa"` where flash was used.
- LLaMA-Factory: `flash_attn: disabled`; ms-swift: `--attn_impl eager`; axolotl: `flash_attention: false`.
- diffusers: do not call `enable_xformers_memory_efficient_attention()` in training.
- plain torch: `with torch.nn.attention.sdpa_kernel(SDPBackend.MATH): ...`, or globally
  `torch.backends.cuda.enable_mem_efficient_sdp(False)`, `enable_flash_sdp(False)`, `enable_cudnn_sdp(False)`.
- Masks: a finite minimum (`torch.finfo(dtype).min`) and at least one key that each row may see.

## When it is a false alarm
If math attention is NaN as well, look at the mask (SF603) or at the scores' range (SF101, SF612). Small differences
between kernels are rounding.
"""

import math

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import AGAINST, FAIR, HINT, REFUTED, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.going_bad import remark, went_bad

KERNEL_BACKWARD = (
    r"ScaledDotProduct\w*Backward|_?flash_?attn\w*backward|FlashAttn\w*Backward|_efficient_attention_backward"
)
OTHER_KERNEL_FINE = (
    r"(?:eager|math\b|manual\b.{0,20}attention|nvte_fused_attn=0|flash_attention\W{1,3}false|_sdp\(false\)|"
    r"disabl\w+ (?:xformers|flash\w*))[^.;\n]{0,40}"
    r"(?:\b(?:fine|works?|ok(?:ay)?|finite|no nan|normal|correct|right|solves?|fixes|cures?|vanish\w*)\b|norm: \d|"
    r"\u6b63\u5e38|tritt es nicht)"
)
ATTENTION_GRADIENT = (
    r"(?:^|[\s(])(?:d[QKV]|[qkv]\.grad|[QKV][ _]grad\w*|(?:query|key|value)[ _]grad\w*)\b.{0,40}"
    r"(?:nan|\binf|cosine|ratio|mismatch|wrong|differ)"
)
KERNELS = r"flash[-_ ]?att\w*|\bsdpa?\b|sdp_kernel|xformers|mem\w*[-_ ]efficient|TransformerEngine"
ONE_KERNEL = r"enable_mem_efficient=True|enable_flash=True|sdp_kernel\(|sdpa_kernel\("


def judge(facts: Facts) -> Clues:
    """Clues: a finite loss and a NaN gradient with a fused kernel; a finite result of another kernel is proof."""
    world = facts.seen("worlds.math_attention.finite")
    backward = next((each for each in facts.all_said(KERNEL_BACKWARD) if "nan" in each.text.lower()), None)
    if backward is not None:
        yield Clue(backward.text, STRONG + HINT, backward.where)
    broken = went_bad(facts)
    told = remark(facts, OTHER_KERNEL_FINE)
    if told is not None and (broken is not None or facts.mentioned(r"\bnan\b")):
        yield Clue(told.text.strip(), STRONG, told.where, risk=True)
    if facts.mentioned(r"\bnan\b"):
        yield from quote(facts.mentioned(ONE_KERNEL), FAIR, "a kernel is selected by hand ({})", risk=True)
    gradient = facts.mentioned(ATTENTION_GRADIENT)
    kernel = facts.mentioned(KERNELS)
    if gradient is not None and kernel is not None:
        yield Clue(f"the attention gradient is wrong: {gradient.text.strip()}", FAIR + HINT, gradient.where)
        yield Clue(f"it comes from a fused kernel ({kernel.text.strip()})", FAIR, kernel.where, risk=True)
    if broken is None:
        return
    attention, seen, precision = facts.context.attention, facts.symptoms, facts.context.precision
    fused = attention is not None and str(attention.value) not in ("eager", "math")
    if attention is not None and fused:
        yield Clue(f"a fused attention kernel ({attention.text.strip()})", FAIR + HINT / 2, attention.where, risk=True)
    elif attention is not None:
        yield Clue(f"attention is {attention.value}", REFUTED, attention.where)
    first = seen.first_bad
    if first is not None and first.loss is not None and math.isfinite(first.loss) and first.loss > 0:
        text = "the gradient is NaN but the loss is finite: the backward pass fails"
        yield Clue(text, FAIR if fused else HINT, broken.where)
    full_range = precision is not None and precision.value in ("bf16", "fp32")
    if precision is not None and full_range and (fused or facts.context.family is not None):
        yield Clue(f"{precision.value} does not overflow ({precision.text.strip()})", 1.5 * HINT, precision.where)
    if facts.context.family is not None and full_range and not seen.good_losses and seen.bad_norms:
        # Without a mention of kernels, a batch with all labels truncated fails the same way.
        cut = facts.settings.find("max_seq_length", "max_seq_len", "cutoff_len", "model_max_length", "max_length")
        weight = 1.5 * HINT if fused or cut is None or not seen.zero_losses else HINT / 2
        yield Clue("an attention model breaks at the first step, without overflow", weight, broken.where)
    if facts.context.half is not None and told is None and world is None:
        yield Clue(f"fp16 explains it too ({facts.context.half.text.strip()})", AGAINST, facts.context.half.where)
    if seen.good_before >= 3 and seen.explodes:
        yield Clue("the loss climbs before it breaks", AGAINST, broken.where)


RULE = Rule(
    code="SF112",
    fix='use another kernel (attn_implementation="eager", or sdpa_kernel(SDPBackend.MATH)) and a newer version',
    beats=("nan-loss", "exploding-gradient", "loss-collapse", "fp16-overflow", "upstream-bug"),
    observes={"worlds.math_attention.finite": "whether the same step is finite with math (eager) attention"},
)
