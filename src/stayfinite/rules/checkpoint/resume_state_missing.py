"""Training resumed without its full state.

## What it means
A training state is more than weights: the optimizer's moments, the schedule's position, the gradient scaler's scale,
the random generators and the position in the data belong to it. If one of them starts afresh, the loss jumps at the
restart, and takes long to come back or does not.

## Why it happens
- Only the weights were saved (`save_only_model`, `torch.save(model.state_dict())`), or only the weights were loaded
  (`from_pretrained(checkpoint)` instead of resuming).
- The optimizer's file is missing, belongs to another world size, or its loading failed with a warning and was skipped.
- Adam without its moments takes first steps of full learning rate in every coordinate: at a late, large learning rate
  without warmup that is a jolt.
- The schedule starts again with warmup, or at its highest rate; `last_epoch` was not restored
  (`param 'initial_lr' is not specified`).
- The data starts again at its first row, so that those rows are seen twice; the same seed shuffles the same way.
- The parameter groups changed in between (new parameters, frozen ones, another order):
  `loaded state dict contains a parameter group that doesn't match`.

## How to recognize it
- A jump of the loss right after `Resuming from ...`, with a learning rate that is not the one from before.
- `KeyError: 'optimizer'`, `KeyError: "param 'initial_lr' is not specified in param_groups[0] when resuming an
  optimizer"`, `doesn't match the size of optimizer's group`, a warning that no optimizer state was found.

## How to fix it
- transformers: `trainer.train(resume_from_checkpoint=True)` with `save_only_model=False` and `ignore_data_skip=False`;
  the folder must hold `optimizer.pt`, `scheduler.pt`, `rng_state*.pth` (and `scaler.pt` with fp16).
- Lightning: `trainer.fit(model, ckpt_path="last")`, and `save_weights_only=False` in `ModelCheckpoint`.
- accelerate: `accelerator.save_state(dir)` and `accelerator.load_state(dir)`;
  `accelerator.skip_first_batches(loader, n)` for the data.
- DeepSpeed: `engine.load_checkpoint(dir, load_optimizer_states=True, load_lr_scheduler_states=True)`, with the same
  number of ranks or a universal checkpoint.
- plain torch: save and load `optimizer.state_dict()`, `scheduler.state_dict()`, `scaler.state_dict()` and the
  generators in one file. This toolkit: `guard.resume()`.
- If the state is lost: warm up again (some hundred steps from a tenth of the rate).

## When it is a false alarm
Starting a *new* training from old weights (fine-tuning) is meant to begin with a fresh optimizer. A small step in a
smoothed loss after a restart comes from the restarted average.
"""

import math
import re

from stayfinite.rules.checkpoint.restart import restart, resumed
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_MISSING = (
    r"param 'initial_lr' is not specified|"
    r"keyerror: ['\"](?:optimizer|optim|scheduler|lr_scheduler|scaler|optimizer_state\w*|lr_schedulers|epoch|"
    r"global_step|amp|state)['\"]|"
    r"(?:optimizer|scheduler|scaler|moment)\w*(?: state)?s? .{0,40}(?:not (?:found|loaded|restored|saved|"
    r"in (?:the )?checkpoint|available)|(?:is|are|was|were) missing|will be reset|re-?initiali[sz]ed|"
    r"skipped(?!.{0,24}\bsteps?\b))|"
    r"(?:could not|cannot|can't|failed to|unable to|not) (?:find|load|restore|resume) .{0,30}(?:optimizer|scheduler|"
    r"scaler|lr state)|"
    r"without (?:loading |restoring )?(?:the )?optimizer state|no optimizer state|reset[- ]optimizer"
)
_RESUMES = r"\bresum\w*|\brestart\w*|\bcontinu\w+ training|\bload\w*|\bcheckpoint"
_GROUPS = (
    r"doesn'?t match the size of optimizer'?s group|different number of parameter groups|"
    r"parameter group that doesn't match"
)


SMALL_JUMP, CLEAR_JUMP, BEYOND_NOISE = 1.1, 1.3, 1.4
"""Loss after over before a resume: needs a second sign, proved by several points, proved by one."""


def judge(facts: Facts) -> Clues:
    """Clues: a library that reports a missing part, or a loss that jumps at the resume."""
    groups = facts.said(_GROUPS)
    yield from quote(groups, STRONG + HINT)
    missing = facts.said(_MISSING)
    if missing:
        yield Clue(missing.text, PROOF if "error" in missing.text.lower() else STRONG + HINT, missing.where)
    worse = facts.symptoms.said("worse after loading")
    taken_up = resumed(facts)
    if worse:
        weight = FAIR + HINT if taken_up is not None else FAIR
        yield Clue(f"reported worse after loading: {worse.text[:120]}", weight, worse.where)
    if taken_up is None:
        return
    jump = restart(facts)
    text, where = taken_up.text, taken_up.where
    grown = jump.after / jump.before if jump is not None and jump.before > 0 else 1.0
    if jump is not None and grown > SMALL_JUMP and jump.after - jump.before > 0.05:
        clear = grown > CLEAR_JUMP and (jump.points >= 3 or grown > BEYOND_NOISE)
        weight = STRONG if clear else HINT - 0.2
        yield Clue(f"the loss jumps from {jump.before:.4g} to {jump.after:.4g} at the restart", weight, jump.where)
        yield Clue(text, HINT, where)
        if jump.lr_before and jump.lr_after is not None and not 0.67 < jump.lr_after / jump.lr_before < 1.5:
            change = f"the learning rate goes from {jump.lr_before:.3g} to {jump.lr_after:.3g} there"
            yield Clue(change, FAIR, jump.where)
    elif facts.symptoms.trouble or missing or groups:
        yield Clue(text, HINT, where, risk=True)
    rate = facts.symptoms.said("rate off") or facts.symptoms.said("rate still")
    if rate and re.search(_RESUMES, rate.text, re.IGNORECASE):
        yield Clue(f"reported: the rate starts again: {rate.text[:100]}", STRONG, rate.where)
    yield from _rate_from_the_start(facts)


def _rate_from_the_start(facts: Facts) -> Clues:
    """A run that resumes in a late epoch at its initial rate although the rate should decay."""
    late = facts.said(r"\bepoch\W{0,4}(?:[2-9]|\d{2,})\b|\b(?:step|iter\w*)\W{0,3}\d{4,}")
    falls = facts.mentioned(
        r"\bdecay(?:ed|s)?\b(?! ?[:=] ?0)(?<!weight decay)(?<!weight_decay)|lr_?schedul|milestones|\bcosine|"
        r"step_size|MultiStepLR|StepLR|lr_step|warmup"
    )
    begun, now = facts.context.lr, facts.symptoms.first_lr
    if now is None:
        for message in facts.all_said(r"\b(?:lr|learning rate)\b\W{1,3}\d"):
            found = re.search(r"\b(?:lr|learning rate)\b\W{1,3}(\d+\.?\d*(?:e-?\d+)?)", message.text, re.IGNORECASE)
            now = float(found.group(1)) if found else None
            break
    if late is None or falls is None or begun is None or now is None:
        return
    if math.isfinite(now) and begun.value > 0 and abs(now / begun.value - 1) < 1e-3:
        yield Clue(f"the rate is {now:g} again, as at the start ({begun.text})", STRONG + HINT, late.where)


RULE = Rule(
    code="SF701",
    fix="save and restore optimizer, scheduler, scaler, generators and data position together (transformers: "
    "resume_from_checkpoint with save_only_model=False; "
    "Lightning: ckpt_path), or warm up again",
    beats=("nan-loss", "loss-diverging"),
    says={
        r"no valid checkpoint found in output directory|can'?t find a valid checkpoint at": PROOF,
        r"trying to restore \w+ state but checkpoint contains only the model": PROOF + STRONG,
        r"missing key in checkpoint state_dict: optim\w*\.": PROOF + STRONG,
    },
    warns={
        r"skipping variable loading for optimizer": STRONG + FAIR,
    },
)
