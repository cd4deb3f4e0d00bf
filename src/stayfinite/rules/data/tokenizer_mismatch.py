"""The tokenizer or chat template does not fit the model or the data.

## What it means
Text becomes other ids than the model learned, or the code that marks which tokens to train on counts other tokens than
the tokenizer makes. Nothing crashes. Rows are silently masked or shifted, and the model learns little, or nonsense.

## Why it happens
- A training script for one conversation template (Vicuna, LLaMA-2, MPT) is run with another model: each turn is one
  token longer or shorter than the script counts, and it masks the whole row
  (`tokenization mismatch: 385 vs. 399. (ignored)`).
- Another version of the tokenizer: fast against slow, `legacy=True` against `False` in LLaMA and T5, an added BOS, a
  space after a special token.
- The tokenizer of another checkpoint: ids mean other words. The loss starts near ln(vocabulary), as if nothing were
  learned.
- Training formats the prompt in one way, generation in another.
- A vocabulary that does not know the language: most words become the unknown token.
- A checkpoint of another vocabulary: embedding and output layer differ in their rows, and in nothing else.

## How to recognize it
- `WARNING: tokenization mismatch: 276 vs. 272. (ignored)` in almost every row (LLaVA, FastChat and their
  descendants), often with a loss of 0.0 because every label was masked.
- `The tokenizer class you load from this checkpoint is not the same type as the class this function is called from.`
- `size mismatch for embed_tokens.weight: ... torch.Size([32001, 4096]) ... torch.Size([32000, 4096])`: one side has
  another number of tokens.
- A pre-trained language model whose first loss is 8 to 12 instead of 1 to 4.
- Decode a batch: `tokenizer.decode(batch["input_ids"][0])`, and the labels that are not -100.

## How to fix it
- Load both from the same name: `AutoTokenizer.from_pretrained(name)` and
  `AutoModelForCausalLM.from_pretrained(name)`.
- Let the tokenizer build the prompt, in training and in use: `tokenizer.apply_chat_template(messages)`.
- LLaVA, FastChat: pass the template of this model (`--version`, `--conv-mode`), and adapt the turn lengths in
  `preprocess_*`: the constant that is subtracted per turn counts the special tokens.
- LLaMA-Factory: `template: qwen` (or the family in use); axolotl: `chat_template: tokenizer_default`; TRL: leave the
  data as `messages` and let `SFTTrainer` apply the template.
- Pin the versions of transformers and tokenizers with the checkpoint.

## When it is a false alarm
A few mismatches among thousands of rows are truncated or odd rows.
`The tokenizer has new PAD/BOS/EOS tokens that differ from the model config` and
`Special tokens have been added in the vocabulary` are notices, not faults.
"""

from stayfinite.rules.data.lookups import TWO_SIZES, VOCABULARY, two_sizes
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.loaded_shapes import other_vocabulary

UNKNOWN = 0.01
"""Share of unknown tokens above which the tokenizer does not fit the text."""


def judge(facts: Facts) -> Clues:
    """Clues: mismatched sizes are proof; another kind of tokenizer or a fresh model's loss are hints."""
    seen = facts.seen("data.unknown_token_share")
    if seen is not None and seen.value > UNKNOWN:
        yield Clue(
            f"{seen.value:.1%} of the tokens are the unknown token", PROOF if seen.value > 0.1 else STRONG, seen.where
        )
        characters = facts.seen("data.unknown_characters")
        if characters is not None:
            yield Clue(f"unknown characters: {' '.join(characters.value)}", HINT, characters.where)
    unknown = facts.mentioned(
        r"\b(?:only|all|just|always|mostly)\b[^.;\n]{0,24}<?\bunk(?:nown)?\b>? ?(?:token|symbol|word)?s?"
    )
    yield from quote(unknown, STRONG, "answers are the unknown token: {:.80}")
    rows = other_vocabulary(facts)
    if rows is not None and not facts.symptoms.healthy:
        text = f"{rows.name or 'the embedding'} has {rows.one[0]} rows on one side and {rows.other[0]} on the other"
        mend = f"use the checkpoint's tokenizer, or resize_token_embeddings({rows.one[0]}) before loading"
        yield Clue(f"{text}: two vocabularies", STRONG, rows.where, fix=mend)
    refused = facts.said(TWO_SIZES)
    if refused is not None and two_sizes(refused)[0] >= VOCABULARY:
        yield from quote(refused, STRONG + HINT, "two vocabularies: {:.120}")
    mismatches = list(
        facts.all_said(
            r"tokeni[sz]ation mismatch|mismatch(?:ed)? token(?:s|i[sz]ation)|token (?:count|length) mismatch"
        )
    )
    if mismatches:
        count = sum(message.count for message in mismatches)
        yield Clue(
            f"{mismatches[0].text}, and {count - 1} more" if count > 1 else mismatches[0].text,
            PROOF if count > 1 else STRONG,
            mismatches[0].where,
        )
    other = facts.said(
        r"missing pre-tokenizer type|vocab(?:ulary)? size mismatch|image features and image tokens do not match|"
        r"number of image tokens? is \d+ while the number of image|"
        r"tokenizer class you load from this checkpoint is not the same type|wrong tokenizer|different tokenizer"
    )
    if mismatches or other is not None:
        yield from quote(
            facts.mentioned(r"\b(?:template|chat_template|version: ?(?:v1|mpt|plain|llama\w*))\b"),
            HINT,
            "a chat template set by hand ({:.80})",
            risk=True,
        )
        if facts.symptoms.zero_loss:
            place = facts.symptoms.at("first_zero")
            yield Clue("the loss is 0: whole rows were masked", HINT, place)


RULE = Rule(
    code="SF306",
    fix=(
        "load the tokenizer from the model's checkpoint and use this model's chat template "
        "(tokenizer.apply_chat_template)"
    ),
    prior=-3.5,
    beats=("all-labels-masked", "loss-collapse", "zero-gradient", "nan-loss", "fp16-overflow-model-family"),
    observes={
        "data.unknown_token_share": "the share of unknown tokens in the data, 0 to 1",
        "data.unknown_characters": "characters of the data that the tokenizer does not know, a list",
    },
    says={
        r"asking to pad but the tokenizer does not have a padding token": PROOF,
        r"(?:eos|pad|bos)_token`? .{0,30}is not found in the vocabulary": PROOF,
    },
    warns={
        r"this will lead to incorrect tokenization": STRONG + FAIR,
    },
)
