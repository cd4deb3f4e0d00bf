"""Rows are truncated at the length limit.

## What it means
Texts longer than the limit lose their end. Where the end is the answer, the verdict or the stop token, the model
learns from what is left: to never stop, or to stop at once. Nothing crashes.

## Why it happens
- A limit from an example script (128, 512) under data that is longer.
- Truncation on the right, with the answer at the end; a long system prompt or few-shot examples in front.
- Tokenizers count tokens, not words: code, tables, Chinese or Hindi text may need several tokens a word with a
  vocabulary that was made for English.
- Audio and pictures have limits too: 30 s in Whisper, a number of image tokens.

## How to recognize it
- The share of rows at exactly the limit: `(lengths == max_length).mean()`. Above a few per cent it matters.
- `Token indices sequence length is longer than the specified maximum sequence length for this model (1313 > 1024)`.
- Messages of the trainer about dropped or truncated rows.
- Outputs that never stop: the end token was cut from most rows.
- `Image features and image tokens do not match: tokens: 1991, features 2990`: image tokens were
  truncated. With more tokens than features, processor and model do not fit.

## How to fix it
- Look at the lengths first: `np.percentile(lengths, [50, 95, 99])`, and set the limit at the 99th.
- transformers: `tokenizer(..., truncation=True, max_length=N)`; `tokenizer.truncation_side = "left"` where the end
  matters most. TRL: `SFTConfig(max_length=N)`; LLaMA-Factory: `cutoff_len`; axolotl: `sequence_len`.
- Split long rows: `return_overflowing_tokens=True` with `stride`; or drop them, and say how many.
- Pack short rows instead of padding (`packing=True` in TRL), and use the room for a longer limit.

## When it is a false alarm
In pre-training on packed text every row is cut at the limit, and that is right. Classification of long documents
often loses nothing by reading their beginning.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.data.lookups import longest_input
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.rule import FAIR, PROOF, STRONG, Clue, Clues, Rule, quote, reaches

CUT = 0.05
"""Share of truncated rows that matters."""

FEW = 3
"""Rows whose lengths are no accident."""
_TOKENS = lazy_regex(r"\W{0,9}(\d[\d,]{0,12}) tokens\W*$", re.IGNORECASE)
_REMOVED = lazy_regex(
    r"\bremoved (\d{1,12}) (?:out )?of (\d{1,12})\b.{0,60}\b(?:labels?\b.{0,20}-100|truncat|no (?:response|answer))",
    re.IGNORECASE,
)
"""Rows without a label, as Unsloth counts them."""
_PLACEHOLDERS = lazy_regex(
    r"\b(?:image|video|audio|vision|multimodal) (?:features?|embeddings?|tokens?)\b.{0,60}\bnot match\b.*?"
    r"\btokens?\W{1,3}(\d+)\W{1,3}(?:features?|embeddings?)\W{1,3}(\d+)|"
    r"\bmismatch in .{0,10}\b(?:image|video|audio)\b.{0,10}token count.{0,120}"
    r"ids=\[(\d+)[\d, ]*\] and text=\[(\d+)",
    re.IGNORECASE,
)
"""How many placeholders of an image are in the row, and how many there should be."""


def judge(facts: Facts) -> Clues:
    """Clues: the measured share of truncated rows; image tokens that were truncated."""
    yield from reaches(facts, "data.truncated_share", CUT, "{:.0%} of the rows are truncated", proof=0.2)
    yield from quote(facts.said(r"likely due to `?truncation"), PROOF)
    yield from quote(some_keep_labels(facts), PROOF + FAIR)
    yield from _printed_lengths(facts)
    for message in facts.all_said(r"\b(?:image|video|audio|vision|multimodal)\b.{0,60}\b(?:not match|mismatch)"):
        found = _PLACEHOLDERS.search(message.text)
        numbers = [int(number) for number in found.groups() if number] if found is not None else [0, 0]
        if 0 < numbers[0] < numbers[1]:
            cut = f"only {numbers[0]} of {numbers[1]} image tokens are left in the row"
            yield Clue(f"{cut}: {message.text.strip()[:120]}", PROOF + STRONG, message.where)
            return


def _printed_lengths(facts: Facts) -> Clues:
    """Lengths of rows that somebody prints, all beyond the limit."""
    limit = longest_input(facts)
    told = [(found, each.count) for each in facts.messages if (found := _TOKENS.match(each.text)) is not None]
    lengths = [int(found[1].replace(",", "")) for found, _ in told]
    if limit is not None and sum(count for _, count in told) >= FEW and min(lengths) > limit[0]:
        yield Clue(f"rows of {min(lengths):,} tokens and more are cut at {limit[1]}", STRONG + FAIR, limit[2])


def some_keep_labels(facts: Facts) -> Line | None:
    """Rows that were removed without a label while others kept theirs: the template matches, the answer is cut off."""
    for message in facts.all_said(r"\bremoved \d+ (?:out )?of \d+"):
        removed = _REMOVED.search(message.text)
        if removed is not None and 0 < int(removed[1]) < int(removed[2]):
            left = int(removed[2]) - int(removed[1])
            kept = f"{left} of {removed[2]} rows keep labels"
            return Line(message.where, f"{kept}: the template matches, the others are cut before the answer")
    return None


RULE = Rule(
    code="SF307",
    severity="warning",
    fix=(
        "raise max_length (cutoff_len, sequence_len) to the 99th percentile of lengths, split long rows, or truncate "
        "the less important side"
    ),
    prior=-4.5,
    observes={"data.truncated_share": "the share of rows that reach the length limit, 0 to 1"},
    says={
        r"caused by cutoff_len being too small": PROOF,
    },
    warns={
        r"> the model'?s max sequence length of \d+": STRONG + FAIR,
    },
)
