"""The end token is masked in the labels, so it is never learned.

## What it means
The end-of-text token of every answer has the label -100 and is never learned. The loss looks right. In use the model
continues after its answer up to the limit, and repeats itself.

## Why it happens
Padding is set to the end token (`tokenizer.pad_token = tokenizer.eos_token`), and labels are masked wherever the
padding's id is. The real end of each text has the same id and is masked with it. transformers'
`DataCollatorForLanguageModeling(mlm=False)` masks this way.

## How to recognize it
- `(labels == tokenizer.eos_token_id).sum()` is 0 in every batch, although the texts end with the token.
- Generated answers never end; in reinforcement learning `completions/clipped_ratio` starts at 1.0.

## How to fix it
- Mask by position: `labels[attention_mask == 0] = -100`.
- Or give padding a token of its own: `tokenizer.add_special_tokens({"pad_token": "<pad>"})` and resize the embeddings;
  many models have a reserved one.
- trl's SFTTrainer masks by position; leave the collator to it.

## When it is a false alarm
Texts packed to full length have no padding; where the program adds no end token, there is none to mask.
"""

from stayfinite.rules.rule import FAIR, PROOF, STRONG, Rule

RULE = Rule(
    code="SF333",
    severity="warning",
    fix="labels[attention_mask == 0] = -100, or use a separate pad token",
    plans={"plan.end_masked": PROOF},
    warns={
        r"end-of-turn token falls inside|turn terminator won'?t be trained": STRONG + FAIR,
    },
)
