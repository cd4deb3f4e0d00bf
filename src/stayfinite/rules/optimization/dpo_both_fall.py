"""Log-probabilities of chosen and rejected answers both fall.

## What it means
DPO rewards the distance between chosen and rejected answers. That distance also grows when both become less likely, the
rejected ones faster. Loss and margin then look perfect while the model unlearns the very answers it should give; the
probability goes to text that is in no pair.

## Why it happens
- Chosen and rejected are almost the same text.
- beta is tiny, so that the model may move far; the learning rate is too high; several epochs over few pairs.
- The chosen answers were never likely: no supervised phase on them.

## How to recognize it
- `logps/chosen` and `logps/rejected` both fall, the chosen by half of its first size and more, while `rewards/margins`
  and `rewards/accuracies` rise.
- `rewards/chosen` is far below 0.

## How to fix it
- trl: `DPOConfig(learning_rate=5e-7, beta=0.1, num_train_epochs=1)`;
  `loss_type=["sigmoid", "sft"], loss_weights=[1.0, 1.0]` adds the chosen answers' own loss.
- OpenRLHF: `--model.beta 0.1`, a lower rate.
- Supervised fine-tuning on the chosen answers first; leave out pairs that differ in few tokens.

## When it is a false alarm
The chosen log-probability falls a little in most DPO runs and then stays. Batches with longer answers have lower sums:
levels over many lines are compared, not single ones.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF246",
    severity="warning",
    fix='lower the learning rate, raise beta, or add the chosen answers\' own loss (trl: loss_type=["sigmoid", "sft"])',
    signals=True,
)
