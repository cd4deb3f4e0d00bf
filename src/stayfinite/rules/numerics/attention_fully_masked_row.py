"""A softmax runs over a fully masked row.

## What it means
Attention hides keys by adding minus infinity before the softmax. If a query may look at no key at all, its row is minus
infinity throughout and the softmax is 0/0: NaN, which the next matrix product spreads over the whole batch.

## Why it happens
- A sequence that is all padding: an empty text, a filler row that completes the batch, a mask of the wrong polarity (in
  torch's `key_padding_mask`, True means *ignore*; in transformers, 1 means *keep*).
- Causal and padding masks together: with left padding the first queries may see only themselves, and those are padding.
- A window, a block mask or packing that leaves a query without keys; cross-attention to an empty memory.
- Adding two masks of `finfo.min` in fp16 or bf16 makes a minus infinity out of two finite ones.

## How to recognize it
- Outputs in which whole rows (the padded positions) are NaN and the others are not.
- Anomaly detection blames `SoftmaxBackward0`, `LogSoftmaxBackward0` or a `ScaledDotProduct...` function.
- NaN for some batches only: those that hold an empty or very short row. It is the same in fp32.
- `masked_fill(mask, float("-inf"))` or `src_key_padding_mask=` in the code.

## How to fix it
- Leave one key: `mask[mask.all(dim=-1), 0] = False` (padding masks), or let every position see itself
  (`mask.fill_diagonal_(False)`).
- Or zero the row afterwards, without a gradient through the NaN: use a large finite number instead of minus infinity
  (`torch.finfo(scores.dtype).min`), then `out = out.masked_fill(dead[..., None], 0)`.
- `F.scaled_dot_product_attention` with a boolean mask returns 0 for such rows since torch 2.5; older versions return
  NaN.
- transformers: pad on the right in training (`tokenizer.padding_side = "right"`), or `attn_implementation="sdpa"`,
  which unmasks such rows. Drop rows with no token before batching.
- plain torch: do not add masks; combine booleans (`causal | padding`) and convert once.

## When it is a false alarm
Minus infinity in a mask is right as long as each row keeps one key. NaN at padded positions that nothing reads, neither
the loss nor a later layer's keys, is ugly and harmless in inference; in training its gradient is still NaN.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.numerics.formulas import anomaly, code_lines, first_line
from stayfinite.rules.rule import AGAINST, FAIR, HINT, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.witness import not_finite

_MASK_CODE = lazy_regex(
    r"(?<!attention_)(?<!loss_)\bmask\s*=\s*\w*mask\b|key_padding_mask\s*[=:]|attn_mask\s*=|memory_mask\s*=|"
    r"src_mask\s*=|"
    r"masked_fill_?\(.{0,60}(?:-\s*(?:float\()?['\"]?inf|-\s*(?:torch|np|math)\.inf|finfo)|float\(['\"]-inf['\"]\)|"
    r"\bpadding mask\b|mask(?:ed)? (?:row|softmax|attention)|"
    r"\b\w*(?:padding|src|tgt|attn|attention|token|patch|key)_mask\s*="
    r"\s*(?!None|False)|\bmask\w*\W{1,3}.{0,30}\b(?:pad\w*|patches|tokens|keys|frames|nodes)\b|"
    r"\b(?:pad\w*|patches|tokens|keys|frames|nodes)\b.{0,20}\bmask(?:ed)?\b",
    re.IGNORECASE,
)
_ATTENDS = (
    r"\btransformer\b|\bHAN\b|\bGAT\b|\bBiDAF\b|\battention\b|\b(?:wmt|iwslt)\d*|\bMultiheadAttention\b|"
    r"TransformerEncoder"
)
_READY_MADE = (
    r"from_pretrained|model_name_or_path|llama|qwen|mistral|gemma|bert\b|\bt5|gpt-?2|\bopt-|bloom|whisper|\bvit\b|"
    r"\bswin|\bdeit|TrainingArguments|import transformers|flash[-_ ]?att|sdpa"
)
_PADDED = r"\bpad(?:ded|ding|s)?\b|pad_sequence"
_ROW_OF_MINUS_INF = r"(?:^|\[)\s*\[?\s*-inf\b(?:[\s,]+-inf\b)+[\s,]*(?:\.\.\.[^\]\d]*)?\]"
"""A printed row of scores that are all -inf."""
_ROW_OF_NAN = r"\[?\s*nan\s*,\s+nan\s*,\s+nan|\[\s*nan,\s*nan"


def judge(facts: Facts) -> Clues:
    """Clues: a mask in the code, rows of NaN, or a softmax named by anomaly detection."""
    bad = not_finite(facts)
    blamed = anomaly(facts)
    if blamed and re.search(r"softmax|scaleddotproduct", blamed[0], re.IGNORECASE):
        # The softmax of a loss may get a NaN from anywhere; attention's own can create one.
        weight = HINT if re.match(r"log", blamed[0], re.IGNORECASE) else FAIR + HINT
        yield Clue(f"{blamed[1]} (softmax over a fully masked row gives 0/0)", weight, blamed[2])
    if bad or blamed:
        code = first_line(code_lines(facts), _MASK_CODE)
        if code:
            filled = (
                re.search(r"-\s*(?:float\()?['\"]?(?:np\.|torch\.|math\.)?inf", code.text, re.IGNORECASE) is not None
            )
            weight = 3.5 if filled and facts.context.half is None else FAIR + HINT
            yield Clue(f"a mask before a softmax: {code.text.strip()[:140]}", weight, code.where, risk=True)
        if code is None and bad:
            yield from _own_attention(facts)
        yield from quote(facts.mentioned(_ROW_OF_MINUS_INF), STRONG + FAIR, "a row of scores is all -inf: {:.80}")
        yield from quote(facts.said(_ROW_OF_NAN), FAIR, "whole rows are NaN: {:.80}")
        kernel = facts.mentioned(
            r"\b(?:eager|math|naive|manual|vanilla)\b.{0,40}\b(?:fine|finite|works?|ok|normal\w*|no nan|correct)"
        )
        yield from quote(kernel, 2 * AGAINST, "another kernel is finite with the same mask: {:.100}")


def _own_attention(facts: Facts) -> Clues:
    """A custom transformer that is non-finite from the start: its mask is the first suspect."""
    attends = facts.mentioned(_ATTENDS)
    symptoms = facts.symptoms
    if attends is None or facts.mentioned(_READY_MADE) is not None or facts.context.half is not None:
        return
    if not symptoms.from_start or symptoms.explodes:
        return
    place = symptoms.at("first_bad")
    yield Clue(f"attention is NaN or inf from the start: {attends.text.strip()[:100]}", FAIR + 0.5, place)
    yield from quote(facts.mentioned(_PADDED), FAIR, "rows of different lengths: {:.100}", risk=True)


RULE = Rule(
    code="SF603",
    fix=(
        "keep one key per query (mask[mask.all(-1), 0] = False), or use torch.finfo(dtype).min instead of -inf and "
        "zero the row; drop empty rows"
    ),
    beats=("nan-loss", "loss-collapse", "loss-formula-singularity", "sdpa-kernel-bug"),
)
