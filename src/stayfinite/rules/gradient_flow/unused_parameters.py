"""Trainable parameters get no gradient, or only zeros: the loss does not use them.

## What it means
After backward, some trainable parameters have `grad is None` (or exactly 0 in every step): the loss does not depend
on them. They stay as they were initialized, cost memory and optimizer state, and may be the very layer that was to
learn.

## Why it happens
- A layer is built in `__init__` and not called in `forward`, or called and its result not used.
- A branch that this data never takes: an auxiliary head, an expert that the router never picks, a loss weight of 0.
- The output is detached or taken through `argmax` on its way to the loss (SF401 for a part of the model).
- The pooler of BERT, the last layer norm of a backbone of which an earlier layer is read: left over from the library.
- Under DDP the same parameters stop the run: see ddp-unused-parameters (SF502).

## How to recognize it
- `RuntimeError: One of the differentiated Tensors appears to not have been used in the graph`.
- `AttributeError: 'NoneType' object has no attribute 'norm'` (or `'data'`) where code loops over `p.grad`.
- `[n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]` after the first backward.
- The guard reports it as well, with the share of parameters, and names them when it closes.

## How to fix it
- Wire it in, or delete it; `p.requires_grad_(False)` for what the library brings along (`add_pooling_layer=False` in
  BERT models).
- `torch.autograd.grad(..., allow_unused=True)` only where None is an expected answer.
- In loops over gradients: `for p in model.parameters(): if p.grad is not None: ...`.
- Mixture of experts: an auxiliary load-balancing loss (`router_aux_loss_coef` with `output_router_logits=True` in
  transformers).

## When it is a false alarm
Branches that are taken seldom (an expert, a rare class head) have gradients now and then only; frozen parameters have
none on purpose.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.known import in_short
from stayfinite.rules.rule import HINT, PROOF, STRONG, Clue, Clues, Rule, quote


def judge(facts: Facts) -> Clues:
    """Clues: torch's error, or a list of parameters without a gradient."""
    cut = facts.seen("gradient.cut_at")
    if cut is not None and cut.value:
        yield Clue(f"used but detached from the loss: {in_short(cut.value)}", STRONG, cut.where)
    yield from quote(facts.said(r"appears to not have been used in the graph|set allow_unused=True"), PROOF)
    if facts.symptoms.healthy:
        return
    told = facts.said(
        r"\bgrad(?:ient)?s? (?:is|are|was|were|=|==|:) ?None\b|\.grad ?(?:is|:|=|==)? ?None\b|did not receive grad|"
        r"gradients do not exist for variables|\b(?:no|without(?: a)?) grad(?:ient)?s?\b[^.;:=\n]{0,30}[:=] ?[1-9]"
    )
    if facts.said(r"'NoneType' object has no attribute '(?:norm|data|abs|detach|pow|add_|mul_|clone)'") is not None:
        yield from quote(facts.said(r"\w\.grad\.\w+"), STRONG, "a parameter without a gradient at: {}")
    if told is not None:
        # Under DDP the same message belongs to a run that it stopped.
        stopped = facts.said(r"finished reduction in the prior iteration")
        yield Clue(told.text, HINT if stopped is not None else STRONG, told.where)


RULE = Rule(
    code="SF404",
    severity="warning",
    fix=(
        "use these layers in forward or remove them; no detach, .data or no_grad before the loss; "
        "requires_grad_(False) if unused on purpose"
    ),
    proofs={
        # Names of trainable parameters whose gradient is None after a backward, a list.
        "gradient.none_parameters": "trainable parameters without a gradient: {}",
        # Names of trainable parameters whose gradient stays exactly 0, a list.
        "gradient.zero_parameters": "trainable parameters whose gradient is exactly 0: {}",
    },
    observes={
        "gradient.cut_at": "lines that detach such parameters from the loss, a list",
    },
)
