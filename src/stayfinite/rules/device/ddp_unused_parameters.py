"""Some parameters got no gradient, so DistributedDataParallel cannot finish.

## What it means
DistributedDataParallel averages a parameter's gradient over the ranks as soon as every rank has it. A parameter that
took no part in the loss of this step never has one, so its bucket is never sent: the next forward pass stops with
"Expected to have finished reduction in the prior iteration", or all ranks hang.

## Why it happens
- A branch is skipped for some batches: a second stage without positive boxes, a modality that is missing, a
  mixture-of-experts layer whose expert got no token, layer drop.
- A head or an embedding is built and never used in the loss (an unused pooler is the usual one).
- The forward pass returns an output that the loss leaves out.
- The forward pass runs on `model.module` and so past the wrapper.
- *Marked ready only once*: the same parameter is used twice in a step under re-entrant gradient checkpointing, or the
  wrapper's forward is called twice before one backward.

## How to recognize it
- `Expected to have finished reduction in the prior iteration before starting a new one`: proof.
- `Expected to mark a variable ready only once`: the other side of it, a parameter that reports twice.
- `TORCH_DISTRIBUTED_DEBUG=DETAIL` adds the names of the parameters that did not receive a gradient.

## How to fix it
Use the parameter, freeze it (`requires_grad_(False)` before wrapping), or delete it. Where the branch is meant to be
optional, tell DDP to look:

- plain torch: `DistributedDataParallel(model, find_unused_parameters=True)`, or add
  `0.0 * sum(p.sum() for p in branch.parameters())` to the loss. For *ready only once*: `static_graph=True`, or
  `checkpoint(..., use_reentrant=False)`.
- transformers: `TrainingArguments(ddp_find_unused_parameters=True)`;
  `gradient_checkpointing_kwargs={"use_reentrant": False}`.
- Lightning: `Trainer(strategy="ddp_find_unused_parameters_true")`.
- accelerate: `Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])`.
- mmcv, mmengine, detectron2: `find_unused_parameters = True` in the config.

Looking costs a walk over the graph each step, so prefer to remove what is not used.

## When it is a false alarm
The warning that `find_unused_parameters=True` was set and *no* unused parameter was found is harmless. A crash with
another error on one rank makes the other ranks report this one: read the first traceback.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clues, Rule, quote

MARKED_TWICE = r"expected to mark a variable ready only once|has been marked as ready twice"


def judge(facts: Facts) -> Clues:
    """Clues: DDP's error; unused parameters found by a probe are a risk with several ranks."""
    refusal = facts.said(
        r"expected to have finished reduction in the prior iteration|"
        r"parameters that were not used in producing (?:the )?loss|"
        r"error: unused parameters? in (?:ddp|distributed)"
    )
    yield from quote(refusal, PROOF)
    silent = facts.said(r"param\w*\b.{0,20}\b(?:which|that) did(?: not|n't) receive (?:a )?grad\w*")
    yield from quote(silent, STRONG + HINT)
    twice = facts.said(MARKED_TWICE)
    yield from quote(twice, STRONG + FAIR if facts.context.checkpointing is None else HINT)


RULE = Rule(
    code="SF502",
    fix=(
        "set find_unused_parameters=True (transformers: ddp_find_unused_parameters=True; Lightning: "
        'strategy="ddp_find_unused_parameters_true"), or remove unused parameters'
    ),
    beats=("nan-loss", "unused-parameters", "rank-desync", "environment"),
)
