"""A next-token model can see the next token.

## What it means
The labels are the tokens one position later, and with a token changed, predictions *before* it change. The model can
copy the answer instead of predicting it: the loss falls to almost nothing within a few hundred steps, and generation,
where there is no later token, is nonsense.

## Why it happens
- The causal mask is missing, or does not reach the attention: `is_causal=False`, a padding mask given in its place.
- The mask is upside down: True means "may not be seen" for `nn.MultiheadAttention` and "takes part" for
  `F.scaled_dot_product_attention`.
- A mask that is added as 0 and 1 instead of 0 and -inf.
- A bidirectional RNN, a convolution that is padded on both sides, a norm over time.
- Labels shifted the wrong way, or shifted twice.

## How to recognize it
- A training loss far below what the text allows (under 1 for plain language from the start).
- An evaluation loss below 0.01 where the first loss was that of a guess among all words.
- Change the last token of a row: no logit before it may change.
- Samples repeat one token, while the loss is excellent.

## How to fix it
- `F.scaled_dot_product_attention(q, k, v, is_causal=True)`;
  `nn.Transformer.generate_square_subsequent_mask(length)` for torch's own layers, with `is_causal=True`.
- Convolutions: pad `kernel_size - 1` on the left only.
- Check the direction of the mask on a row of three tokens.

## When it is a false alarm
Prefix models see their whole prefix on purpose, as do masked models, whose labels are not the next token. The probe
asks only where labels and tokens are shifted by one.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import HINT, PROOF, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.numbers import measured

SEEN = 1e-3
"""Change before the token over change after it; smaller is rounding."""


def judge(facts: Facts) -> Clues:
    """Clues: a probe that changed one token and compared earlier predictions, or an evaluation loss near 0."""
    yield from quote(facts.symptoms.contradicted("too good"), STRONG + HINT)
    leak = measured(facts, "tokens.leak")
    if leak is not None and leak[0] > SEEN:
        text = f"changing one token changes earlier predictions by {leak[0]:.1%} of the later ones"
        yield Clue(text, PROOF, leak[1])


RULE = Rule(
    code="SF414",
    fix="is_causal=True or a mask of -inf above the diagonal in every layer; pad convolutions on the left only",
    observes={"tokens.leak": "the change of predictions before a changed token over the change of those after it"},
)
