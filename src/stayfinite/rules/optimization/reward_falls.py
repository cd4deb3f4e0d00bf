"""The reward fell below half of its best level.

## What it means
The mean reward has lost more than half of its best level, beyond its own noise. This names what is seen; KL, entropy,
ratios and the share of cut answers show why.

## Why it happens
The policy left the range in which the reward means something (KL, SF240), samples one answer only (entropy, SF241),
trains on samples of another policy (SF244, SF245), runs into the length limit, or was hit by one bad update. Or the
data became harder.

## How to recognize it
`reward` (trl, OpenRLHF), `critic/score/mean` (verl) falls and stays low. Compare the lines round the turn: which other
number turned first?

## How to fix it
- Return to the checkpoint of the best reward and lower the learning rate.
- Read answers from before and after the turn.
- trl: `log_completions=True`; verl: `trainer.log_val_generations=10`.

## When it is a false alarm
A curriculum that moves to harder prompts lowers the reward by design. Rewards that swing between batches are noise:
a level over many lines is judged.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF248",
    severity="warning",
    fix="return to the checkpoint of the best reward and lower the learning rate; check which signal turned first",
    signals=True,
)
