"""Tied weights became two tensors.

## What it means
Embedding and output layer were to share one matrix. They began with the same numbers and are two parameters now, each
with its own gradient: the model is larger than meant, and the two drift apart.

## Why it happens
- The values were copied: `head.weight.data.copy_(emb.weight)`, `nn.Parameter(emb.weight.clone())`.
- The embedding was replaced after tying: `from_pretrained`, `resize`, a new `nn.Embedding`.
- The layers were tied before `deepcopy` of one of them, or before they were loaded from two entries of a checkpoint.

## How to recognize it
- `model.head.weight is model.emb.weight` is false.
- The number of parameters is larger by vocabulary times width.

## How to fix it
Tie last, by assigning the parameter itself: `model.head.weight = model.emb.weight`; in transformers
`model.tie_weights()` after every change of the embedding. Build the optimizer afterwards.

## When it is a false alarm
Starting the output layer from the embedding's values without tying is a choice as well.
"""

from stayfinite.rules.rule import FAIR, PROOF, STRONG, Rule

RULE = Rule(
    code="SF430",
    severity="warning",
    fix="assign the parameter itself, after the last change to the embedding: model.head.weight = model.emb.weight",
    proofs={
        # The two parameters, in words; empty where they are one.
        "model.weights_untied": "{}",
    },
    says={
        r"due to tied embeddings|tie_word_embeddings=true but": PROOF,
    },
    warns={
        r"tied parameters are on different devices": STRONG + FAIR,
        r"embeddings are no longer tied": STRONG + FAIR,
        r"the model weights are not tied": STRONG + FAIR,
    },
)
