"""A token id is beyond the embedding.

## What it means
The input holds a token id that is larger than or equal to the number of rows of the embedding (or negative). On the
CPU torch raises `IndexError: index out of range in self`; on CUDA a kernel assert kills the process
(`srcIndex < srcSelectDimSize`), and every later call in it fails with `device-side assert triggered`, so the last
line of the traceback is rarely the place.

## Why it happens
- Tokens were added (`tokenizer.add_tokens`, `add_special_tokens`, a `[PAD]` for a model without one), and the
  embedding was not enlarged.
- The tokenizer is not the model's: another checkpoint, another size, a self-trained vocabulary.
- Placeholders went into the embedding: -100 of labels given as `input_ids` or as `decoder_input_ids`, -200 as an
  image token, -1 as padding.
- A table smaller than the tokenizer: `vocab_size` in a hand-written config, a `token_type_ids` of 1 in a model with
  one type (RoBERTa), a `nn.Embedding` sized by `len(set(words))` and indexed from 1.

## How to recognize it
- `index out of range in self`, `Tried to access index 30522 out of table with 30521 rows`.
- `indexSelectLargeIndex` or `indexSelectSmallIndex: ... Assertion srcIndex < srcSelectDimSize failed`; in newer
  versions `vectorized_gather_kernel: Assertion ind >= 0 && ind < ind_dim_size`.
- The traceback passes `word_embeddings`, `embed_tokens` or `wte`. If it passes `position_embeddings`,
  `embed_positions` or `wpe`, the input is too long instead: see SF304.
- One line tells: `int(input_ids.min()), int(input_ids.max()), model.get_input_embeddings().num_embeddings`.

## How to fix it
- transformers: after adding tokens `model.resize_token_embeddings(len(tokenizer))`, before adapters are put on and
  before the optimizer is built; save tokenizer and model together. Load both from the same name.
- Pad with a token that exists: `tokenizer.pad_token = tokenizer.eos_token`; leave -100 to the labels.
- encoder-decoder models: give `labels` and let the model shift them (`DataCollatorForSeq2Seq` pads with -100 there
  only).
- plain torch: `nn.Embedding(max(ids) + 1, dim)`, and an id for unknown words.
- To see the true place: run one batch on the CPU, or set `CUDA_LAUNCH_BLOCKING=1`.

## When it is a false alarm
An embedding with more rows than the tokenizer has tokens is normal (rounded up to a multiple of 64 or 128). Only ids
at or above the number of rows fail.
"""

from stayfinite.rules.data.lookups import (
    SCATTER,
    asked_and_rows,
    bare_assert,
    is_class_count,
    is_vocabulary,
    longest_input,
    lookup_failure,
    position_limit,
)
from stayfinite.rules.data.position_out_of_range import POSITIONS
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import AGAINST, FAIR, HINT, STRONG, Clue, Clues, Rule, quote

VOCABULARY = 5000
"""A table of at least this many rows is a vocabulary; position tables had at most 4,098 before RoPE."""


def judge(facts: Facts) -> Clues:
    """Clues: a failed lookup, and signs that it was the vocabulary's."""
    failure, vague, scatter = lookup_failure(facts), bare_assert(facts), facts.said(SCATTER)
    told = failure or scatter
    asked = None if told is None else asked_and_rows(told)
    known = None if asked is None else is_vocabulary(facts, asked[1])
    if failure is None and vague is None and known is None and (asked is None or asked[1] < VOCABULARY):
        return
    yield from quote(failure, 3.2)
    if asked is not None:
        rows, big = asked[1], asked[1] >= VOCABULARY
        if known is not None:
            row = "a row beyond it" if asked[0] is None else f"row {asked[0]}"
            yield Clue(f"id {row}, but the vocabulary has {rows} rows ({known.text})", STRONG, known.where)
        elif is_class_count(facts, rows) is None:
            yield Clue(
                f"a table of {rows} rows is {'a vocabulary' if big else 'small for a vocabulary'}",
                FAIR if big else AGAINST,
            )
    elif vague is not None:
        yield Clue(vague.text, HINT, vague.where)
    table = facts.said(
        r"\b(?:\w*word_emb\w*|embed_tokens|wte|inputs_embeds|\w*tok(?:en)?_emb\w*|(?:src|tgt|trg|dec|enc)_emb\w*|"
        r"char_emb\w*|embed_in)\b|\bin embedding\b|"
        r"\bembedding (?:layer|table|matrix)\b|\[input_ids\]|\bF\.embedding\(|\btorch\.embedding\("
    )
    if table is not None:
        yield Clue("the traceback passes an embedding", FAIR, table.where)
    added = facts.mentioned(
        r"add(?:ed|ing)?[_ ](?:\w+[_ ])?(?:special[_ ])?tokens|new tokens|resize_token_embeddings|"
        r"vocab(?:ulary)?[_ ]?size|pad_token|image_token"
    )
    if added is not None:
        yield Clue(f"tokens were added: {added.text.strip()}", STRONG if failure else FAIR, added.where)
    elif (
        tokenizer := facts.settings.find("tokenizer_name", "tokenizer_name_or_path", "tokenizer_path", "tokenizer")
    ) is not None:
        model = facts.context.model
        if isinstance(tokenizer.value, str) and (model is None or model.value.lower() not in tokenizer.value.lower()):
            yield Clue(f"a separate tokenizer ({tokenizer.name}: {tokenizer.value})", HINT, tokenizer.where)
    yield from _against(facts)


def _against(facts: Facts) -> Clues:
    yield from quote(facts.said(POSITIONS), AGAINST, "the traceback passes the position table: {}")
    longest, limit = longest_input(facts), position_limit(facts)
    if longest is not None and limit is not None and longest[0] > limit[0]:
        yield Clue(f"inputs are longer than the position table ({longest[1]}; {limit[1]})", AGAINST, longest[2])


RULE = Rule(
    code="SF303",
    fix=(
        "model.resize_token_embeddings(len(tokenizer)) after adding tokens, and load tokenizer and model from the "
        "same checkpoint"
    ),
    prior=-3.0,
    beats=("environment", "hardware", "nan-loss"),
    plans={"plan.tokens_added": STRONG + HINT},
    proofs={
        # The ids of a batch that the embedding has no row for, a list.
        "data.token_ids_out_of_range": "token ids outside the embedding: {}",
    },
    warns={
        r"(?:pad|eos|bos)_token_id must be .{0,80}within the vocabulary": STRONG + FAIR,
    },
)
