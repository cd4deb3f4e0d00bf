"""An input is longer than the model's position table.

## What it means
The model looks up a learned vector for each position, and the sequence has more positions than that table has rows.
It crashes as a missing token id does: `index out of range in self` on the CPU, `srcIndex < srcSelectDimSize` and a
device-side assert on CUDA, or a shape error between the sequence length and the length of the table.

## Why it happens
- Nothing truncates: `truncation=True` is missing, or `max_length` is above what the model holds (BERT and RoBERTa
  512, GPT-2 and BART 1,024, CLIP 77, Whisper's decoder 448).
- RoBERTa-like models count positions from `padding_idx + 1`, so a table of 514 rows holds 512 tokens. A config
  written for training from scratch with `max_position_embeddings=512` fails at the first full-length row.
- A tokenizer without a limit of its own (`model_max_length` 1e30) truncates nothing even with `truncation=True`.
- Tokens that come on top: prompt tokens, image patches (a larger image has more patches), a separator added after
  truncation.

## How to recognize it
- The warning `Token indices sequence length is longer than the specified maximum sequence length for this model (781
  > 512)` before the crash.
- The traceback passes `position_embeddings`, `embed_positions`, `wpe` or `pos_embed`.
- `The size of tensor a (600) must match the size of tensor b (512) at non-singleton dimension 1`,
  `The expanded size of the tensor (571) must match the existing size (512)`,
  `Cannot forward sequence of length 2000, block size is only 1024`,
  `Labels' sequence length 505 cannot exceed the maximum allowed length of 448 tokens`.
- It comes after some good batches: with the first long row.

## How to fix it
- transformers: `tokenizer(text, truncation=True, max_length=512)`, where the number is at most
  `model.config.max_position_embeddings` (less 2 for RoBERTa, CamemBERT, XLM-R, Longformer).
  `tokenizer.model_max_length = 512` where the tokenizer knows no limit. In the example scripts:
  `--max_seq_length 512` or `--block_size 512`.
- From scratch: `RobertaConfig(max_position_embeddings=514)` for 512 tokens.
- Long texts: split with `stride` and `return_overflowing_tokens=True`, or a model with relative or rotary positions.
- Images: `interpolate_pos_encoding=True` in the forward of ViT models, or resize to the size they were trained with.
- nanoGPT: `block_size` of the data no larger than that of the model.

## When it is a false alarm
The tokenizer's warning alone is harmless when the text is split or truncated afterwards, and in models with rotary or
relative positions (LLaMA, Qwen, T5), which have no table to overrun.
"""

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.data.lookups import (
    TWO_SIZES,
    VOCABULARY,
    bare_assert,
    first_missing,
    longest_input,
    lookup_failure,
    position_limit,
    table_rows,
    two_sizes,
)
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_REFUSAL = (
    r"cannot forward sequence of length|sequence length \d+ (?:exceeds|cannot exceed)|"
    r"cannot exceed the maximum allowed length of|sequence length of \d+ is (?:longer|greater) than|"
    r"exceeds? (?:the )?(?:maximum|max_position_embeddings|model's maximum)|input (?:is|sequence is) too long|"
    r"tokens exceeds maximum length|size of sample #?\S+ is invalid .{0,60}max_positions|"
    r"must be (?:less|smaller) than max_position_embeddings|"
    r"sequence (?:length )?(?:is )?(?:longer|greater|larger) than (?:the )?(?:maximum|max|block|context|position)|"
    r"maximum (?:context|sequence) length (?:is|of) \d+|larger than (?:the )?max(?:imum)? (?:position|sequence)|"
    r"input image size \(.{3,20}\) doesn'?t match model"
)
WORKED = 10
"""Logged losses before a lookup fails: ids out of range are in the first batches, a row too long may come late."""
TABLES = frozenset({
    50, 76, 77, 99, 100, 128, 196, 197, 256, 257, 448, 511, 512, 513, 514, 577, 1023, 1024, 1025, 1026, 2047, 2048,
    2050, 4095, 4096, 4098, 1500, 5000,
})  # fmt: skip
"""Usual sizes of position tables, and their last index, which old torch prints."""


_SHAPE = lazy_regex(r"torch\.Size\(\[\d+, ?(\d+)\]\)\W*$")
"""Rows and tokens."""

POSITIONS = (
    r"\b(?:position_embeddings?|embed_positions|wpe|position_ids|pos_embed\w*|positional|pos_embeddings?|pos_emb|"
    r"pos_table|self\.pe\[|pos_encod\w*|position_enc\w*|PositionalEncoding|PositionalEmbedding)(?:\b|(?<=\[))"
)


_RAISED = (
    r"\bmax_?(?:seq_?|sequence_?|source_?|target_?)?len(?:gth)?\b[^.;\n]{0,30}"
    r"\b(?:rais\w+|increas\w+|higher|larger|longer|above|beyond|bigger)\b|"
    r"\b(?:rais\w+|increas\w+|chang\w+)\b[^.;\n]{0,20}\bmax_?(?:seq_?|sequence_?)?len(?:gth)?\b"
)


def judge(facts: Facts) -> Clues:
    """Clues: a failed lookup or an error, and lengths beyond the table."""
    seen = facts.seen("data.longest_row")
    limit = position_limit(facts)
    if seen is not None and limit is not None and seen.value > limit[0]:
        yield Clue(f"a row of {seen.value} tokens, but {limit[1]}", PROOF, seen.where)
    if facts.symptoms.healthy:
        return
    refusal = facts.said(_REFUSAL)
    yield from quote(refusal, STRONG)
    yield from _does_not_fit(facts)
    failure, vague = lookup_failure(facts), bare_assert(facts)
    crash = failure or vague
    if crash is None and refusal is None:
        return
    if crash is not None:
        yield Clue(crash.text, FAIR if failure else HINT, crash.where)
        rows = table_rows(crash)
        if rows is not None and rows in TABLES:
            yield Clue(f"{rows} is the size of a table of positions", STRONG)
        if rows is None and facts.symptoms.points >= WORKED and not facts.symptoms.bad:
            yield Clue("it worked for many steps: the first row that is longer", FAIR + HINT, crash.where)
        following = first_missing(crash)
        if following is not None and following < VOCABULARY:
            yield Clue(f"row {following} is the first missing one, as when positions count up", FAIR)
    yield from _lengths(facts)


def _does_not_fit(facts: Facts) -> Clues:
    """A tensor that is longer than a usual table of positions, to which it is added or expanded."""
    refused = facts.said(TWO_SIZES)
    if refused is None:
        return
    shorter, longer = two_sizes(refused)
    if shorter in TABLES and shorter < longer < VOCABULARY:
        near = facts.mentioned(r"position|token_type_ids|\bpos_|\bwpe\b|\bmask\b|\bwhisper\b") is not None
        weight = STRONG + HINT if near else FAIR + HINT
        yield Clue(f"{longer} does not fit {shorter}, the size of a table of positions", weight, refused.where)


def _lengths(facts: Facts) -> Clues:
    yield from quote(facts.said(POSITIONS), STRONG, "the traceback passes the position table: {}")
    yield from quote(facts.said(r"sequence length is longer than the specified maximum"), STRONG + HINT, "{:.140}")
    yield from quote(facts.mentioned(_RAISED), STRONG, "the length limit was raised: {:.80}")
    longest, limit = longest_input(facts), position_limit(facts)
    if longest is not None and limit is not None and longest[0] > limit[0]:
        yield Clue(f"inputs of up to {longest[0]} tokens ({longest[1]}), but {limit[1]}", STRONG, longest[2], risk=True)
    elif limit is not None and (shape := _longest_shape(facts)) is not None and shape[0] > limit[0]:
        yield Clue(f"a batch of {shape[0]} tokens a row was printed, but {limit[1]}", STRONG + FAIR, shape[1])
    elif limit is not None and limit[0] == 510 and "max_position" in limit[1]:
        yield Clue(f"RoBERTa with {limit[1]} holds 510 tokens: positions start at padding_idx + 1", STRONG, risk=True)


def _longest_shape(facts: Facts) -> tuple[int, str] | None:
    """Tokens a row, and the line, of the longest batch among those whose shapes a log prints one after the other."""
    shapes = [
        (int(found[1]), run.where(number))
        for run in facts.runs
        for number, line in enumerate(run.opening, 1)
        if (found := _SHAPE.search(line)) is not None
    ]
    return max(shapes) if len(shapes) > 1 else None


RULE = Rule(
    code="SF304",
    fix=(
        "tokenizer(..., truncation=True, max_length=N) with N at most model.config.max_position_embeddings (minus 2 "
        "for RoBERTa)"
    ),
    proofs={
        # Positions of a batch that the position table has no row for, a list.
        "data.positions_out_of_range": "positions beyond the table: {}",
    },
    beats=("token-id-out-of-range", "truncation", "environment", "nan-loss"),
    observes={
        "data.longest_row": "tokens of the longest row",
    },
    plans={"plan.too_long": PROOF},
)
