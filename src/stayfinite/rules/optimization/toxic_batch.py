"""One batch derails training; the steps around it are fine.

## What it means
Training is fine, one batch gives a loss or gradient many times the usual, and after its update the run has jumped to
a worse level or is lost. Replayed on the good weights the same batch spikes again: it is the batch, not the state.

## Why it happens
Repeated or garbled text, an extreme length, a mislabeled or corrupt row, a rare language or domain in one lump, a
batch with hardly any labeled token, whose mean is taken over two of them. Large models meet such batches every some
thousand steps.

## How to recognize it
- Hundreds of even points, one loss or gradient norm far above them, and a return afterwards; or NaN right after the
  spike.
- Another seed (order of data) moves or removes it; the same seed brings it back at the same step.
- Replay: the batch spikes on earlier weights too, and the steps before and after it do not.

## How to fix it
Go back to a checkpoint from before the spike and pass over the batches around it; then look at their rows.

- stayfinite: `Guard` vetoes such a step and keeps the batch; the ledger skips it on resume.
- transformers: `max_grad_norm=1.0` bounds the damage; `ignore_data_skip=True` on resume changes the order of data.
- Lightning: `Trainer(gradient_clip_val=1.0)`, and `return None` from `training_step` skips a batch (not in
  distributed runs).
- Data: drop rows with extreme length, repetition or too few labels; shuffle before packing; normalize the loss by the
  tokens of the whole batch, not of each row.

## When it is a false alarm
Spikes that come more often and higher have another cause: the rate (SF201), Adam's beta2, attention scores that grow.
A row with NaN in it is SF301.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.course import lone_spike
from stayfinite.rules.signs.going_bad import went_bad

LONG_HEALTH = 50
"""Healthy points after which a sudden end is more likely a batch than a setting."""


def judge(facts: Facts) -> Clues:
    """Clues: the batch replayed on good weights; in a log, a lone spike or a sudden end."""
    replayed = facts.seen("worlds.good_weights.spikes")
    if replayed is not None:
        yield Clue(
            f"on good weights the batch {'spikes again' if replayed.value else 'is normal'}",
            PROOF if replayed.value else AGAINST * 2,
            replayed.where,
        )
    skipped = facts.said(r"(?:non-?finite|nan) batch")
    yield from quote(skipped, FAIR)
    seen, broken = facts.symptoms, went_bad(facts)
    yield from quote(lone_spike(facts), FAIR if broken is not None or seen.diverges or skipped else HINT / 2)
    if seen.lone_spike and broken is None:
        yield Clue(f"no other loss is near {seen.largest_loss:.3g}", STRONG + HINT, seen.at("largest_loss"))
    first = seen.first_bad
    if broken is None or first is None or seen.good_before < LONG_HEALTH:
        return
    yield Clue(f"{seen.good_before} finite losses before a sudden end", HINT, broken.where)
    full_range = facts.context.not_half
    if full_range is not None:
        yield Clue(f"{full_range.value} has enough range ({full_range.text.strip()})", HINT / 2, full_range.where)
    if seen.explodes:
        yield Clue("the climb before the end took several points", -HINT, broken.where)
    if seen.good_after >= 2:
        yield Clue("finite losses follow", STRONG / 4, broken.where)


RULE = Rule(
    code="SF213",
    severity="warning",
    fix="return to a checkpoint before the spike, skip the batches around it, and inspect their rows",
    beats=("nan-loss", "loss-diverging", "exploding-gradient"),
    observes={
        "worlds.good_weights.spikes": "whether the batch's loss or gradient is far above the usual on good weights"
    },
)
